#include "engine/sequence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace millrace {
namespace {

constexpr std::string_view kNotInForm =
    "this model's vocabulary cannot write what the form that was asked for wants next";

SamplingParams of_choice(SamplingParams params, int32_t choice) {
  params.stream += static_cast<uint64_t>(choice);
  return params;
}

bool contains(std::span<const int32_t> tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

Sequence::Sequence(std::shared_ptr<Group> group, int32_t choice, BlockTable table, int32_t longest, int64_t vocab)
    : group_(std::move(group)),
      choice_(choice),
      table_(std::move(table)),
      prompt_length_(static_cast<int32_t>(request().prompt.size())),
      longest_(longest),
      vocab_(vocab),
      tokens_(request().prompt),
      sampler_(of_choice(request().sampling, choice), static_cast<int32_t>(vocab)) {
  tokens_.reserve(static_cast<size_t>(longest));
  if (request().prompt_logprobs >= 0 && !group_->emitted) {
    prompt_logprobs_.resize(request().prompt.size());
    for (auto& none : prompt_logprobs_) none.chosen.token = -1;
  }
  start_choice();
}

void Sequence::start_choice() {
  sampler_.observe_prompt(request().prompt);
  if (!request().constraints.empty()) constraint_ = request().constraints[static_cast<size_t>(choice_)];
  if (constraint_ != nullptr || request().min_tokens > 0) mask_.resize(mask_words(vocab_));
}

void Sequence::become(int32_t choice) {
  choice_ = choice;
  sampler_ = Sampler(of_choice(request().sampling, choice), static_cast<int32_t>(vocab_));
  start_choice();
}

std::unique_ptr<Sequence> Sequence::fork(int32_t choice, BlockTable table) const {
  auto child = std::make_unique<Sequence>(group_, choice, std::move(table), longest_, vocab_);
  child->computed_ = computed_;
  child->prefix_key = prefix_key;
  child->node = node;
  child->pages_in_tree = pages_in_tree;
  return child;
}

void Sequence::begin_again() {
  computed_ = 0;
  node = nullptr;
  pages_in_tree = 0;
  slot.reset();
  slot_tokens = 0;
  pooled_.clear();
}

int32_t Sequence::first_wanted() const {
  if (generated() > 0) return length() - 1;
  if (request().kind == RequestKind::Embed && request().pooling == Pooling::Mean) return 0;
  if (scores()) return std::min(std::max(0, request().score_from - 1), prompt_length_ - 1);
  return prompt_length_ - 1;
}

StepBatch::Rows Sequence::wanted_logits(int32_t rows) const {
  if (request().kind == RequestKind::Embed) return {};
  const bool completes = rows == static_cast<int32_t>(pending().size());
  const bool draws = completes && request().kind == RequestKind::Generate;
  // The row at p tells of the token at p + 1; the last row of the prompt tells of the first that is drawn.
  const int32_t end = draws ? rows : completes ? rows - 1 : rows;
  const int32_t begin = scores() ? std::max(0, first_wanted() - computed_) : draws ? rows - 1 : end;
  return {std::min(begin, end), end};
}

StepBatch::Rows Sequence::wanted_hidden(int32_t rows) const {
  if (request().kind != RequestKind::Embed) return {};
  const bool completes = rows == static_cast<int32_t>(pending().size());
  if (request().pooling == Pooling::Last) return {completes ? rows - 1 : rows, rows};
  return {0, rows};
}

void Sequence::take_prompt_logits(int32_t position, std::span<const float> logits) {
  const auto next = static_cast<size_t>(position) + 1;
  if (static_cast<int32_t>(next) < std::max(1, request().score_from) || static_cast<int32_t>(next) >= prompt_length_)
    return;
  fill_logprobs(logits, tokens_[next], request().prompt_logprobs, prompt_logprobs_[next]);
}

void Sequence::take_hidden(std::span<const float> hidden) {
  pooled_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) pooled_[i] += hidden[i];
}

// End tokens are impossible before min_tokens, unless nothing else is possible.
void Sequence::prepare_mask() {
  if (mask_.empty()) return;
  masked_ = constraint_ != nullptr && constraint_->fill_mask(mask_);
  if (generated() >= request().min_tokens) return;
  if (!masked_) std::fill(mask_.begin(), mask_.end(), ~uint32_t{0});
  const auto all = mask_;
  for (const int32_t end : request().end_tokens) {
    if (end >= 0 && end < vocab_) mask_[static_cast<size_t>(end) / 32] &= ~(uint32_t{1} << (end % 32));
  }
  if (std::all_of(mask_.begin(), mask_.end(), [](uint32_t word) { return word == 0; })) mask_ = all;
  masked_ = true;
}

Emission Sequence::emission(int32_t token) {
  Emission e{id(), token, finish_, nullptr};
  e.choice = choice_;
  e.prompt_tokens = prompt_length_;
  e.cached_tokens = group_->cached_tokens;
  if (!group_->emitted && request().prompt_logprobs >= 0) e.prompt_logprobs = prompt_logprobs_;
  group_->emitted = true;
  return e;
}

void Sequence::draw(std::span<float> logits, ThreadPool* helpers) {
  drawn_ = -1;
  const auto is_number = [](float logit) { return logit > -std::numeric_limits<float>::infinity(); };
  if (std::none_of(logits.begin(), logits.end(), is_number)) return;
  if (constraint_ != nullptr && constraint_->failed()) return;
  drawn_ = sampler_.sample(logits, masked_ ? std::span<const uint32_t>(mask_) : std::span<const uint32_t>(), helpers);
}

Emission Sequence::take_own() {
  if (constraint_ != nullptr && constraint_->failed()) return broken(FinishReason::NotInForm, kNotInForm);
  Emission e = take(drawn_);
  if (drawn_ >= 0) e.logprobs = sampler_.logprobs();
  return e;
}

bool Sequence::needs_token_only() const {
  const bool free = constraint_ == nullptr && (mask_.empty() || generated() >= request().min_tokens);
  return free && request().sampling.logprobs < 0 && request().kind == RequestKind::Generate && !scores() &&
         group_->unborn.empty();
}

bool Sequence::wants_likeliest() const {
  const SamplingParams& p = request().sampling;
  return is_greedy(p) && !has_penalties(p) && p.logit_bias.empty() && needs_token_only();
}

Emission Sequence::take_drawn(int32_t token) {
  if (token >= 0) sampler_.took(token);
  return take(token);
}

Emission Sequence::broken(FinishReason reason, std::string_view why) {
  finish_ = reason;
  Emission e = emission(-1);
  e.error = why;
  return e;
}

Emission Sequence::take(int32_t token) {
  if (token < 0) return broken(FinishReason::Error, "the model gives no number for any token: its weights are damaged");
  tokens_.push_back(token);
  const bool is_end = contains(request().end_tokens, token);
  if (constraint_ != nullptr && !is_end) constraint_->accept(token);
  if (constraint_ != nullptr && constraint_->failed()) return broken(FinishReason::NotInForm, kNotInForm);
  if (is_end || (constraint_ != nullptr && constraint_->terminated())) {
    finish_ = FinishReason::Stop;
  } else if (length() >= longest_) {
    finish_ = FinishReason::Length;
  }
  Emission e = emission(token);
  e.is_end = is_end;
  return e;
}

Emission Sequence::end_of_prompt() {
  finish_ = FinishReason::Length;
  double square = 0;
  for (const double x : pooled_) square += x * x;
  const bool mean = request().pooling == Pooling::Mean;
  const double length = request().normalise ? std::sqrt(square) : mean ? prompt_length_ : 1;
  embedding_.clear();
  for (const double x : pooled_) embedding_.push_back(static_cast<float>(length > 0 ? x / length : 0));
  Emission e = emission(-1);
  e.embedding = embedding_;
  return e;
}

}  // namespace millrace
