#include "sampling/sampler.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "sampling/selection.h"

namespace millrace {
namespace {

// Sets the logits of masked tokens to -infinity.
void apply_mask(std::span<float> logits, std::span<const uint32_t> mask) {
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] == ~uint32_t{0}) continue;
    const size_t end = std::min(word * 32 + 32, logits.size());
    for (size_t i = word * 32; i < end; ++i) {
      if ((mask[word] >> (i % 32) & 1) == 0) logits[i] = -kInfinity;
    }
  }
}

int32_t lowest_allowed(std::span<const uint32_t> mask) {
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] != 0) return static_cast<int32_t>(word * 32 + static_cast<size_t>(__builtin_ctz(mask[word])));
  }
  return 0;
}

// Leaves one entry per token.
void merge_biases(std::vector<std::pair<int32_t, float>>& biases) {
  std::map<int32_t, float> sums;
  for (const auto& [token, bias] : biases) sums[token] += bias;
  biases.assign(sums.begin(), sums.end());
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, int32_t vocab) : params_(params), vocab_(vocab) {
  for (const auto& [token, bias] : params.logit_bias) {
    if (token >= vocab) fail(ErrorKind::Usage, "logit_bias names token {}, and the vocabulary has {}", token, vocab);
  }
  merge_biases(params_.logit_bias);
  if (params.repetition_penalty != 1) seen_ = TokenCounts(vocab, params.repetition_window);
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) generated_ = TokenCounts(vocab, 0);
  if (params.top_k > 0 && params.top_k < vocab && !is_greedy(params)) {
    kept_.resize(static_cast<size_t>(params.top_k));
    kept_tokens_.resize(static_cast<size_t>(params.top_k));
  }
  if (params.typical_p < 1) scratch_.resize(kept_.empty() ? static_cast<size_t>(vocab) : kept_.size());
  if (params.logprobs >= 0) {
    original_.resize(static_cast<size_t>(vocab));
    logprobs_.top.reserve(kMostLogprobs);
  }
}

void Sampler::observe_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) seen_.add(token);
}

int32_t Sampler::sample(std::span<float> logits, std::span<const uint32_t> mask, ThreadPool* helpers) {
  MR_ASSERT(logits.size() == static_cast<size_t>(vocab_));
  if (params_.logprobs >= 0) std::copy(logits.begin(), logits.end(), original_.begin());
  penalise(logits);
  for (const auto& [token, bias] : params_.logit_bias) logits[static_cast<size_t>(token)] += bias;
  apply_mask(logits, mask);
  int32_t token = is_greedy(params_) ? likeliest(logits, helpers) : draw_from(logits, helpers);
  if (token < 0) token = lowest_allowed(mask);
  took(token);
  if (params_.logprobs >= 0) fill_logprobs(original_, token, params_.logprobs, logprobs_);
  return token;
}

void Sampler::took(int32_t token) {
  ++drawn_;
  seen_.add(token);
  generated_.add(token);
}

std::optional<DrawRow> Sampler::describe(std::span<LogitChange> room, int later) const {
  if (params_.logprobs >= 0 || (params_.typical_p < 1 && !is_greedy(params_))) return std::nullopt;
  if (later > 0 && has_penalties(params_)) return std::nullopt;
  if (seen_.distinct() + generated_.distinct() + params_.logit_bias.size() > room.size()) return std::nullopt;
  DrawRow row;
  auto at = room.begin();
  seen_.for_each([&](int32_t token, int32_t) { *at++ = {token, params_.repetition_penalty}; });
  row.counted = static_cast<int32_t>(at - room.begin());
  generated_.for_each([&](int32_t token, int32_t count) {
    *at++ = {token, params_.frequency_penalty * static_cast<float>(count) + params_.presence_penalty};
  });
  row.biased = static_cast<int32_t>(at - room.begin());
  for (const auto& [token, bias] : params_.logit_bias) *at++ = {token, bias};
  row.end = static_cast<int32_t>(at - room.begin());
  if (is_greedy(params_)) return row;
  row.temperature = params_.temperature;
  row.top_k = std::max(0, params_.top_k);
  row.top_p = params_.top_p;
  row.min_p = params_.min_p;
  row.unit = random_unit(params_.seed, drawn_ + static_cast<uint64_t>(later), params_.stream);
  return row;
}

void Sampler::penalise(std::span<float> logits) const {
  const float penalty = params_.repetition_penalty;
  seen_.for_each([&](int32_t token, int32_t) {
    float& x = logits[static_cast<size_t>(token)];
    x = x > 0 ? x / penalty : x * penalty;
  });
  generated_.for_each([&](int32_t token, int32_t count) {
    logits[static_cast<size_t>(token)] -=
        params_.frequency_penalty * static_cast<float>(count) + params_.presence_penalty;
  });
}

int32_t Sampler::draw_from(std::span<float> logits, ThreadPool* helpers) {
  std::span<float> weights = logits;
  if (!kept_.empty())
    weights = std::span(kept_).first(gather_top_k(logits, kept_.size(), kept_.data(), kept_tokens_.data(), helpers));
  double total = to_weights(weights, params_.temperature, helpers);
  if (total == 0) return -1;
  if (params_.top_p < 1) total = keep_top_p(weights, total, params_.top_p);
  if (params_.min_p > 0) total = keep_min_p(weights, params_.min_p);
  if (params_.typical_p < 1) total = keep_typical(weights, total, params_.typical_p, scratch_);
  const size_t chosen = draw(weights, total, random_unit(params_.seed, drawn_, params_.stream));
  return kept_.empty() ? static_cast<int32_t>(chosen) : kept_tokens_[chosen];
}

}  // namespace millrace
