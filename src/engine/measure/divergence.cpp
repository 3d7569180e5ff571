#include "engine/measure/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/step_batch.h"

namespace millrace {
namespace {

double log_of_sum(std::span<const float> logits, double most) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

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

std::span<const float> row_of(const Matrix& logits, int64_t i) {
  return {logits.row<float>(i), static_cast<size_t>(logits.cols)};
}

}  // namespace

double kl_divergence(std::span<const float> exact, std::span<const float> logits) {
  const double p_all = log_of_sum(exact, *std::max_element(exact.begin(), exact.end()));
  const double q_all = log_of_sum(logits, *std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double p = std::exp(exact[i] - p_all);
    if (p > 0) sum += p * ((exact[i] - p_all) - (logits[i] - q_all));
  }
  return std::max(sum, 0.0);  // rounding may make it negative
}

Divergence measure_divergence(Runner& exact, Runner& runner, std::span<const int32_t> tokens, int32_t context,
                              int64_t most_windows, int32_t bos,
                              const std::function<void(int64_t, int64_t)>& progress) {
  const int64_t windows =
      std::min<int64_t>(most_windows > 0 ? most_windows : INT64_MAX, static_cast<int64_t>(tokens.size()) / context);
  const auto chunk = static_cast<int32_t>(std::min(exact.options().rows, runner.options().rows));
  Divergence result;
  double total = 0;
  for (int64_t w = 0; w < windows; ++w) {
    std::vector<int32_t> window(tokens.begin() + w * context, tokens.begin() + (w + 1) * context);
    if (bos >= 0) window[0] = bos;
    FedSequence a(exact, context), b(runner, context);
    for (int32_t done = 0; done < context; done += chunk) {
      const auto some =
          std::span(window).subspan(static_cast<size_t>(done), static_cast<size_t>(std::min(chunk, context - done)));
      const Matrix p = a.next(some), q = b.next(some);
      for (int64_t i = std::max(0, context / 2 - done); i < p.rows; ++i) {
        const double divergence = kl_divergence(row_of(p, i), row_of(q, i));
        result.largest = std::max(result.largest, divergence);
        total += divergence;
        ++result.tokens;
      }
    }
    progress(w + 1, windows);
  }
  if (result.tokens > 0) result.mean = total / double(result.tokens);
  return result;
}

}  // namespace millrace
