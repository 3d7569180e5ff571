// Draws the tokens of one sequence. Each draw is a function of the seed and of how many tokens were drawn before, so
// the same seed gives the same text however sequences are batched.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/sample/sample.h"
#include "sampling/logprobs.h"
#include "sampling/sampling_params.h"
#include "sampling/token_counts.h"

namespace millrace {

class ThreadPool;

class Sampler {
 public:
  // The params are valid; throws Usage where they name a token that the vocabulary has not. Allocates all that sampling
  // needs.
  Sampler(const SamplingParams& params, int32_t vocab);

  void observe_prompt(std::span<const int32_t> tokens);  // for the repetition penalty

  // The next token; `logits` (one per token of the vocabulary) is overwritten. A mask holds one bit per token, lowest
  // bit first, 1 for allowed; empty: all are. NaN counts as -infinity; where nothing is above that, the lowest allowed
  // token is taken. Ties go to the lowest token. With helpers all of them look through the vocabulary.
  int32_t sample(std::span<float> logits, std::span<const uint32_t> mask = {}, ThreadPool* helpers = nullptr);

  // What a device needs to draw the next token as sample() would without a mask, or the one `later` tokens behind it;
  // the changes of logits go to the front of `room`. None: only sample() can (log-probabilities, typical sampling),
  // there are more changes than room, or penalties wait for the tokens before.
  std::optional<DrawRow> describe(std::span<LogitChange> room, int later = 0) const;
  void took(int32_t token);  // that a device drew

  // Of the last token; null unless params.logprobs asks for them.
  const TokenLogprobs* logprobs() const { return params_.logprobs >= 0 ? &logprobs_ : nullptr; }

 private:
  void penalise(std::span<float> logits) const;
  int32_t draw_from(std::span<float> logits, ThreadPool* helpers);  // -1: nothing can be drawn

  SamplingParams params_;
  int32_t vocab_;
  uint64_t drawn_ = 0;
  TokenCounts seen_;         // prompt and answer; counts only where there is a repetition penalty
  TokenCounts generated_;    // counts only where there is a frequency or presence penalty
  std::vector<float> kept_;  // top-k's survivors and their tokens
  std::vector<int32_t> kept_tokens_;
  std::vector<float> scratch_;   // for typical sampling
  std::vector<float> original_;  // the logits as they came, where logprobs are asked for
  TokenLogprobs logprobs_;
};

}  // namespace millrace
