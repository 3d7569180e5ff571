#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/step_batch.h"

namespace millrace {
namespace {

double negative_log_probability(const float* logits, int64_t vocab, int32_t token) {
  const float most = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i] - most));
  return std::log(sum) + most - logits[token];
}

}  // namespace

PerplexityResult measure_perplexity(Runner& runner, std::span<const int32_t> tokens, int32_t context,
                                    int64_t most_windows, int32_t bos,
                                    const std::function<void(int64_t, int64_t, double)>& progress) {
  const int64_t windows =
      std::min<int64_t>(most_windows > 0 ? most_windows : INT64_MAX, static_cast<int64_t>(tokens.size()) / context);
  if (windows == 0)
    fail(ErrorKind::Usage, "the text has {} tokens, fewer than one window of {}", tokens.size(), context);
  const auto rows = static_cast<int32_t>(std::min(runner.options().rows, runner.options().logit_rows));
  const int64_t vocab = runner.model().config().vocab;
  StepBatch step(rows, 1, rows);
  BlockTable table = runner.kv().new_table(context);
  MR_ASSERT(table.reserve(context));

  double total = 0;
  PerplexityResult result;
  for (int64_t w = 0; w < windows; ++w) {
    std::vector<int32_t> window(tokens.begin() + w * context, tokens.begin() + (w + 1) * context);
    if (bos >= 0) window[0] = bos;
    for (int32_t done = 0; done < context; done += rows) {
      const int32_t count = std::min(rows, context - done);
      const bool scored = done + count > context / 2;
      step.clear();
      step.add(std::span(window).subspan(static_cast<size_t>(done), static_cast<size_t>(count)), done, context,
               table.pages(), scored ? StepBatch::Logits::All : StepBatch::Logits::None);
      const Matrix logits = runner.forward(step.batch());
      for (int32_t position = std::max(done, context / 2); scored && position < std::min(done + count, context - 1);
           ++position) {
        total += negative_log_probability(logits.row<float>(position - done), vocab,
                                          window[static_cast<size_t>(position) + 1]);
        ++result.tokens;
      }
    }
    if (!std::isfinite(total))
      fail(ErrorKind::BadFile, "the model gives no probability for the text: its weights are damaged");
    result.perplexity = std::exp(total / static_cast<double>(result.tokens));
    progress(++result.windows, windows, result.perplexity);
  }
  return result;
}

}  // namespace millrace
