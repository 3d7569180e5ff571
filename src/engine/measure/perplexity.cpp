#include "engine/measure/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/engine.h"

namespace millrace {
namespace {

struct Scored {
  double total = 0;  // sum of negated log-probabilities
  int64_t tokens = 0;
};

Scored score(Engine& engine, std::vector<int32_t> window) {
  const auto half = static_cast<int32_t>(window.size()) / 2;
  Request request{
      .prompt = std::move(window), .kind = RequestKind::Score, .prompt_logprobs = 0, .score_from = half + 1};
  Scored scored;
  bool possible = true;
  engine.submit(std::move(request));
  while (engine.step([&](const Emission& emission) {
    for (const auto& [chosen, top] : emission.prompt_logprobs) {
      if (chosen.token < 0) continue;
      possible = possible && chosen.logprob > kImpossibleLogprob;
      scored.total -= chosen.logprob;
      ++scored.tokens;
    }
  })) {
  }
  if (!possible) fail(ErrorKind::BadFile, "the model gives no probability for the text: its weights are damaged");
  return scored;
}

}  // namespace

PerplexityResult measure_perplexity(Runner& runner, std::span<const int32_t> tokens, int32_t context,
                                    int64_t most_windows, int32_t bos,
                                    const std::function<void(int64_t, int64_t, double)>& progress) {
  const int64_t windows =
      std::min<int64_t>(most_windows > 0 ? most_windows : INT64_MAX, static_cast<int64_t>(tokens.size()) / context);
  if (windows == 0)
    fail(ErrorKind::Usage, "the text has {} tokens, fewer than one window of {}", tokens.size(), context);
  Engine engine(runner, {.prefix_cache = false});
  double total = 0;
  PerplexityResult result;
  for (int64_t w = 0; w < windows; ++w) {
    std::vector<int32_t> window(tokens.begin() + w * context, tokens.begin() + (w + 1) * context);
    if (bos >= 0) window[0] = bos;
    const Scored scored = score(engine, std::move(window));
    total += scored.total;
    result.tokens += scored.tokens;
    result.perplexity = std::exp(total / static_cast<double>(result.tokens));
    progress(++result.windows, windows, result.perplexity);
  }
  return result;
}

}  // namespace millrace
