// Draws the tokens of one sequence. Each draw depends on the seed and on the number of previous draws only, so a seed
// gives the same text for every batch composition.
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
  // `params` are valid. Throws Usage if they name a token outside of the vocabulary. Allocates all memory that sampling
  // needs.
  Sampler(const SamplingParams& params, int32_t vocab);

  void observe_prompt(std::span<const int32_t> tokens);  // for the repetition penalty

  // Returns the next token and overwrites `logits`, one per token of the vocabulary. The mask holds one bit per token,
  // lowest bit first, 1 for allowed; an empty mask allows all. NaN counts as -infinity. If no logit is above -infinity,
  // the lowest allowed token is taken. Ties go to the lowest token. The threads of `helpers` share the scan of the
  // vocabulary.
  int32_t sample(std::span<float> logits, std::span<const uint32_t> mask = {}, ThreadPool* helpers = nullptr);

  // Describes, for a device, the draw that sample() would make without a mask for the next token, or for the token
  // `later` positions behind it. Writes changes of logits to the front of `room`. Returns nothing if only sample() can
  // draw (log-probabilities, typical sampling), if `room` is too small, or if penalties depend on tokens not yet drawn.
  std::optional<DrawRow> describe(std::span<LogitChange> room, int later = 0) const;
  void took(int32_t token);  // records a token that a device drew

  // Log-probabilities of the last token; null unless params.logprobs requests them.
  const TokenLogprobs* logprobs() const { return params_.logprobs >= 0 ? &logprobs_ : nullptr; }

 private:
  void penalise(std::span<float> logits) const;
  int32_t draw_from(std::span<float> logits, ThreadPool* helpers);  // -1: no logit is above -infinity

  SamplingParams params_;
  int32_t vocab_;
  uint64_t drawn_ = 0;
  TokenCounts seen_;         // prompt and answer; empty without a repetition penalty
  TokenCounts generated_;    // answer; empty without a frequency or presence penalty
  std::vector<float> kept_;  // logits that pass top-k, and their tokens
  std::vector<int32_t> kept_tokens_;
  std::vector<float> scratch_;   // for typical sampling
  std::vector<float> original_;  // unmodified logits, if logprobs are requested
  TokenLogprobs logprobs_;
};

}  // namespace millrace
