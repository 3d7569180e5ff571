#include "engine/sequence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/adapters.h"

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

Sequence::Sequence(std::shared_ptr<Group> group, int32_t choice, BlockTable table, int32_t longest, int64_t vocab,
                   int32_t most_drafts, bool pooled_by_model)
    : group_(std::move(group)),
      choice_(choice),
      table_(std::move(table)),
      prompt_length_(static_cast<int32_t>(request().prompt.size())),
      length_(prompt_length_),
      longest_(longest),
      most_drafts_(most_drafts),
      vocab_(vocab),
      pooled_by_model_(pooled_by_model),
      tokens_(request().prompt),
      sampler_(of_choice(request().sampling, choice), static_cast<int32_t>(vocab)) {
  if (const Adapter* adapter = request().adapter.get()) {
    adapter_ = adapter->slot;
    prefix_key.adapter = adapter->key;
  }
  const auto rows = static_cast<size_t>(1 + most_drafts);
  tokens_.reserve(static_cast<size_t>(longest));
  drawn_.reserve(rows);
  if (request().sampling.logprobs >= 0) {
    logprobs_.resize(rows);
    for (auto& row : logprobs_) row.top.reserve(kMostLogprobs);
  }
  if (request().prompt_logprobs >= 0 && choice == 0) {
    prompt_logprobs_.resize(request().prompt.size());
    for (auto& none : prompt_logprobs_) none.chosen.token = -1;
  }
  start_choice();
}

void Sequence::start_choice() {
  sampler_.observe_prompt(request().prompt);
  if (!request().constraints.empty()) constraint_ = request().constraints[static_cast<size_t>(choice_)];
  if (constraint_ == nullptr && request().min_tokens == 0) return;
  const auto rows = static_cast<size_t>(1 + most_drafts_);
  masks_.resize(rows * mask_words(vocab_));
  masked_.resize(rows);
}

void Sequence::become(int32_t choice) {
  choice_ = choice;
  sampler_ = Sampler(of_choice(request().sampling, choice), static_cast<int32_t>(vocab_));
  start_choice();
}

std::unique_ptr<Sequence> Sequence::fork(int32_t choice) {
  const auto found = std::find_if(unborn_.begin(), unborn_.end(), [&](const auto& s) { return s->choice() == choice; });
  MR_ASSERT(found != unborn_.end());
  std::unique_ptr<Sequence> child = std::move(*found);
  unborn_.erase(found);
  child->computed_ = computed_;
  child->prefix_key = prefix_key;
  child->node = node;
  child->pages_in_tree = pages_in_tree;
  return child;
}

void Sequence::begin_again() {
  drop_drafts();
  drop_branches();
  computed_ = 0;
  node = nullptr;
  pages_in_tree = 0;
  slot.reset();
  slot_tokens = 0;
  checkpoint.reset();
  prefill = {.due = prefill.due};
  pooled_.clear();
}

int32_t Sequence::first_wanted() const {
  if (generated() > 0) return length() - 1;
  if (wants_every_row() || (request().kind == RequestKind::Embed && request().pooling != Pooling::Last)) return 0;
  if (scores()) return std::min(std::max(0, request().score_from - 1), prompt_length_ - 1);
  return prompt_length_ - 1;
}

StepBatch::Rows Sequence::wanted_logits(int32_t rows) const {
  if (request().kind == RequestKind::Embed) return {};
  if (generating() || wants_every_row()) return {0, rows};
  const bool completes = rows == static_cast<int32_t>(pending().size());
  const bool draws = completes && request().kind == RequestKind::Generate;
  // Row p predicts token p + 1; the last row of the prompt predicts the first generated token.
  const int32_t end = draws ? rows : completes ? rows - 1 : rows;
  const int32_t begin = scores() ? std::max(0, first_wanted() - computed_) : draws ? rows - 1 : end;
  return {std::min(begin, end), end};
}

StepBatch::Rows Sequence::wanted_hidden(int32_t rows) const {
  if (request().kind != RequestKind::Embed) return {};
  if (is_pooled()) return {0, 1};
  const bool completes = rows == static_cast<int32_t>(pending().size());
  if (request().pooling == Pooling::Last && !wants_every_row()) return {completes ? rows - 1 : rows, rows};
  return {0, rows};
}

void Sequence::take_prompt_logits(int32_t position, std::span<const float> logits) {
  if (wants_every_row()) return request().on_row(position, logits);
  const auto next = static_cast<size_t>(position) + 1;
  if (static_cast<int32_t>(next) < std::max(1, request().score_from) || static_cast<int32_t>(next) >= prompt_length_)
    return;
  fill_logprobs(logits, tokens_[next], request().prompt_logprobs, prompt_logprobs_[next]);
}

void Sequence::take_hidden(int32_t position, std::span<const float> hidden) {
  if (wants_every_row()) return request().on_row(position, hidden);
  pooled_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) pooled_[i] += hidden[i];
}

bool Sequence::may_follow(int32_t draft) const {
  return draft >= 0 && draft < vocab_ && !contains(request().end_tokens, draft);
}

void Sequence::set_drafts(std::span<const int32_t> drafts) {
  drop_drafts();
  for (const int32_t token : drafts) {
    if (!may_follow(token)) break;
    tokens_.push_back(token);
  }
  if (drafted() > 0 && !masks_.empty()) mask_drafts();
}

void Sequence::add_branch(BlockTable table) {
  DraftBranch& branch = branches_.emplace_back(DraftBranch{std::move(table)});
  branch.tokens.reserve(static_cast<size_t>(1 + most_drafts_));
}

void Sequence::set_branch(DraftBranch& branch, std::span<const int32_t> drafts) {
  MR_ASSERT(masks_.empty());
  branch.tokens.push_back(tokens().back());
  for (const int32_t token : drafts) {
    if (!may_follow(token)) break;
    branch.tokens.push_back(token);
  }
  if (branch.draft().empty()) branch.close();
}

int32_t Sequence::branch_rows() const {
  int32_t rows = 0;
  for (const DraftBranch& branch : branches_) rows += branch.rows();
  return rows;
}

DraftBranch* Sequence::branch_of(int32_t token) {
  if (token == next_draft()) return nullptr;
  const auto found = std::find_if(branches_.begin(), branches_.end(), [&](const DraftBranch& branch) {
    return !branch.draft().empty() && branch.draft().front() == token;
  });
  return found == branches_.end() ? nullptr : &*found;
}

int32_t Sequence::choose_branch(int32_t token) {
  int32_t skipped = 0;
  if (DraftBranch* branch = branch_of(token)) {
    skipped = branch->row;
    fresh.row += skipped;
    table_.swap(branch->table);
    rejected_drafts_ += drafted();
    rejected_drafts_ -= static_cast<int32_t>(branch->draft().size());  // take() counts those that remain
    drop_drafts();
    tokens_.insert(tokens_.end(), branch->draft().begin(), branch->draft().end());
  }
  for (const DraftBranch& branch : branches_) rejected_drafts_ += static_cast<int32_t>(branch.draft().size());
  drop_branches();
  return skipped;
}

// The mask of a row depends on the drafts before it, so the constraint accepts them and then rolls back.
void Sequence::mask_drafts() {
  const auto allowed = [&](int32_t row, int32_t token) {
    return masked_[static_cast<size_t>(row)] == 0 || (mask(row)[static_cast<size_t>(token) / 32] >> (token % 32) & 1);
  };
  const auto failed = [&] { return constraint_ != nullptr && constraint_->failed(); };
  if (constraint_ != nullptr) constraint_->mark();
  int32_t kept = 0;
  for (fill_mask(0); kept < drafted() && !failed(); ++kept) {
    const int32_t token = tokens_[static_cast<size_t>(length_ + kept)];
    if (!allowed(kept, token)) break;
    if (constraint_ != nullptr) constraint_->accept(token);
    if (failed() || (constraint_ != nullptr && constraint_->terminated())) break;
    fill_mask(kept + 1);
    if (failed()) break;  // no token can follow; the next step without drafts reports it
  }
  if (constraint_ != nullptr) constraint_->roll_back();
  tokens_.resize(static_cast<size_t>(length_ + kept));
}

void Sequence::prepare_mask() {
  if (!masks_.empty() && drafted() == 0) fill_mask(0);
}

std::span<uint32_t> Sequence::mask(int32_t row) {
  const size_t words = mask_words(vocab_);
  return std::span(masks_).subspan(static_cast<size_t>(row) * words, words);
}

// Masks end tokens before min_tokens, unless no other token is allowed.
void Sequence::fill_mask(int32_t row) {
  const std::span<uint32_t> words = mask(row);
  const auto fill = [&] { return constraint_ != nullptr && constraint_->fill_mask(words); };
  const bool masked = fill(), may_end = generated() + row >= request().min_tokens;
  masked_[static_cast<size_t>(row)] = masked || !may_end ? 1 : 0;
  if (may_end) return;
  if (!masked) std::fill(words.begin(), words.end(), ~uint32_t{0});
  for (const int32_t end : request().end_tokens) {
    if (end >= 0 && end < vocab_) words[static_cast<size_t>(end) / 32] &= ~(uint32_t{1} << (end % 32));
  }
  if (std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; })) fill();
}

Emission Sequence::emission(int32_t token) {
  Emission e{id(), token, finish_, nullptr};
  e.choice = choice_;
  e.prompt_tokens = prompt_length_;
  e.cached_tokens = group_->cached_tokens;
  e.accepted_drafts = accepted_drafts_;
  e.rejected_drafts = rejected_drafts_;
  e.compute_ms = compute_ms;
  e.joules = joules;
  if (!group_->emitted && request().prompt_logprobs >= 0) e.prompt_logprobs = prompt_logprobs_;
  group_->emitted = true;
  return e;
}

void Sequence::draw(Matrix logits, ThreadPool* helpers) {
  drawn_.clear();
  auto drafts = std::span<const int32_t>(tokens_).subspan(static_cast<size_t>(length_));
  int32_t first = 0;  // of the rows of this chain
  for (int32_t row = 0;; ++row) {
    const std::span<float> values(logits.row<float>(first + row), static_cast<size_t>(logits.cols));
    drawn_.push_back(draw_row(values, row, helpers));
    const DraftBranch* branch = row == 0 ? branch_of(drawn_.back()) : nullptr;
    if (branch != nullptr) {
      first = branch->row;
      drafts = branch->draft();
    }
    if (row == std::ssize(drafts) || drawn_.back() != drafts[static_cast<size_t>(row)]) return;
  }
}

int32_t Sequence::draw_row(std::span<float> logits, int32_t row, ThreadPool* helpers) {
  const auto is_number = [](float logit) { return logit > -std::numeric_limits<float>::infinity(); };
  if (std::none_of(logits.begin(), logits.end(), is_number)) return -1;
  if (constraint_ != nullptr && constraint_->failed()) return -1;
  const bool masked = !masks_.empty() && masked_[static_cast<size_t>(row)] != 0;
  const int32_t token =
      sampler_.sample(logits, masked ? std::span<const uint32_t>(mask(row)) : std::span<const uint32_t>(), helpers);
  if (sampler_.logprobs() != nullptr) logprobs_[static_cast<size_t>(row)] = *sampler_.logprobs();
  return token;
}

Emission Sequence::take_own(size_t row) {
  if (constraint_ != nullptr && constraint_->failed()) return broken(FinishReason::NotInForm, kNotInForm);
  const int32_t token = drawn_[row];
  Emission e = take(token);
  if (token >= 0 && !logprobs_.empty()) e.logprobs = &logprobs_[row];
  return e;
}

bool Sequence::needs_token_only() const {
  const bool free = constraint_ == nullptr && (masks_.empty() || generated() >= request().min_tokens);
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
  if (token == next_draft()) {
    ++accepted_drafts_;
  } else {
    rejected_drafts_ += drafted();
    drop_drafts();
    tokens_.push_back(token);
  }
  ++length_;
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
  const bool mean = request().pooling == Pooling::Mean && !is_pooled();
  const double length = request().normalise.value_or(true) ? std::sqrt(square) : mean ? prompt_length_ : 1;
  embedding_.clear();
  for (const double x : pooled_) embedding_.push_back(static_cast<float>(length > 0 ? x / length : 0));
  Emission e = emission(-1);
  e.embedding = embedding_;
  return e;
}

}  // namespace millrace
