#include "engine/measure/scored_rows.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/step_batch.h"

namespace millrace {
namespace {

// One sequence of one runner.
class FedSequence {
 public:
  FedSequence(Runner& runner, int32_t length)
      : runner_(runner),
        length_(length),
        table_(runner.state().new_table(length)),
        slot_(runner.state().new_slot()),
        step_(runner.options().rows, 1, runner.options().rows) {
    MR_ASSERT(table_.reserve(length));
  }
  Matrix next(std::span<const int32_t> tokens) {
    step_.clear();
    step_.add(tokens, past_, length_, table_.pages(), StepBatch::Logits::All, slot_.id());
    past_ += static_cast<int32_t>(tokens.size());
    return runner_.forward(step_.batch());
  }

 private:
  Runner& runner_;
  int32_t length_, past_ = 0;
  BlockTable table_;
  Slot slot_;
  StepBatch step_;
};

}  // namespace

int64_t ScoredText::windows() const {
  const int64_t whole = static_cast<int64_t>(tokens.size()) / context;
  return most_windows > 0 ? std::min(most_windows, whole) : whole;
}

void score_rows(std::span<Runner* const> runners, const ScoredText& text,
                FunctionRef<void(std::span<const Matrix>, int64_t row)> on_row,
                const std::function<void(int64_t, int64_t)>& progress) {
  const int32_t context = text.context;
  int64_t chunk = context;
  for (const Runner* runner : runners) chunk = std::min(chunk, runner->options().rows);
  for (int64_t w = 0; w < text.windows(); ++w) {
    const auto tokens = text.tokens.subspan(static_cast<size_t>(w * context), static_cast<size_t>(context));
    std::vector<int32_t> window(tokens.begin(), tokens.end());
    if (text.bos >= 0) window[0] = text.bos;
    std::vector<std::unique_ptr<FedSequence>> sequences;
    for (Runner* runner : runners) sequences.push_back(std::make_unique<FedSequence>(*runner, context));
    for (int64_t done = 0; done < context; done += chunk) {
      const auto some =
          std::span(window).subspan(static_cast<size_t>(done), static_cast<size_t>(std::min(chunk, context - done)));
      std::vector<Matrix> logits;
      for (auto& sequence : sequences) logits.push_back(sequence->next(some));
      for (int64_t row = std::max<int64_t>(0, context / 2 - done); row < std::ssize(some); ++row) on_row(logits, row);
    }
    progress(w + 1, text.windows());
  }
}

}  // namespace millrace
