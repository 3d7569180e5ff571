#include "engine/draft_plan.h"

#include <algorithm>

namespace millrace {

void DraftPlan::reserve(size_t sequences, size_t rows) {
  queue_.reserve(sequences);
  lengths_.reserve(sequences);
  branches_.reserve(sequences);
  taken_.reserve(rows);
}

// Equal gains are taken in the order of the sequences.
bool DraftPlan::comes_later(const Next& a, const Next& b) {
  return a.gain != b.gain ? a.gain < b.gain : a.offer > b.offer;
}

void DraftPlan::push(const Next& next) {
  queue_.push_back(next);
  std::push_heap(queue_.begin(), queue_.end(), comes_later);
}

DraftPlan::Next DraftPlan::pop() {
  std::pop_heap(queue_.begin(), queue_.end(), comes_later);
  const Next next = queue_.back();
  queue_.pop_back();
  return next;
}

// Takes the likeliest of all next tokens again and again, and keeps the number of rows with the best rate. The cost of
// a step grows in jumps, so a later row may pay although the next one does not.
std::span<const int32_t> DraftPlan::choose(std::span<const DraftOffer> offers, const Limits& limits,
                                           FunctionRef<double(const DraftedRows&)> step_us) {
  queue_.clear();
  taken_.clear();
  lengths_.assign(offers.size(), 0);
  branches_.assign(offers.size(), 0);
  for (size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].tokens > 0) push({offers[i].chance, i, 0});
  }
  auto tokens = static_cast<double>(limits.sequences);
  Grown best{tokens, (1 + limits.margin) * tokens / step_us({}), {}};
  DraftedRows rows;
  while (!queue_.empty() && rows.tokens < limits.rows) {
    const Next next = pop();
    taken_.push_back(next.offer);
    tokens += next.gain;
    ++rows.tokens;
    rows.sequences += next.number == 0 ? 1 : 0;
    rows.longest = std::max<int64_t>(rows.longest, next.number + 1);
    if (const double rate = tokens / step_us(rows); rate > best.rate) best = {tokens, rate, rows};
    const DraftOffer& offer = offers[next.offer];
    if (next.number + 1 < offer.tokens) push({next.gain * offer.chance, next.offer, next.number + 1});
  }
  for (int64_t i = 0; i < best.rows.tokens; ++i) ++lengths_[taken_[static_cast<size_t>(i)]];
  if (best.rows.tokens > 0 && limits.branches > 0) choose_branches(offers, limits, best, step_us);
  return lengths_;
}

DraftPlan::Next DraftPlan::branch_of(std::span<const DraftOffer> offers, size_t offer, int32_t number,
                                     double reached) const {
  const DraftOffer& from = offers[offer];
  double right = reached * from.others[static_cast<size_t>(number)], tokens = 0;
  for (int32_t i = 0; i < lengths_[offer]; ++i, right *= from.chance) tokens += right;
  return {tokens / (1 + lengths_[offer]), offer, number, reached};
}

// The same for whole branches beside the drafts that were chosen.
void DraftPlan::choose_branches(std::span<const DraftOffer> offers, const Limits& limits, Grown grown,
                                FunctionRef<double(const DraftedRows&)> step_us) {
  queue_.clear();
  taken_.clear();
  for (size_t i = 0; i < offers.size(); ++i) {
    if (lengths_[i] > 0 && offers[i].branches > 0) push(branch_of(offers, i, 0, 1 - offers[i].chance));
  }
  double best = (1 + limits.margin) * grown.rate;
  size_t kept = 0;
  while (!queue_.empty() && grown.rows.branches < limits.branches) {
    const Next next = pop();
    const int32_t length = lengths_[next.offer];
    if (grown.rows.rows() + 1 + length > limits.rows) continue;
    taken_.push_back(next.offer);
    grown.tokens += next.gain * (1 + length);
    grown.rows.tokens += length;
    ++grown.rows.branches;
    if (const double rate = grown.tokens / step_us(grown.rows); rate > best) {
      best = rate;
      kept = taken_.size();
    }
    const DraftOffer& offer = offers[next.offer];
    const double wrong = next.reached * (1 - offer.others[static_cast<size_t>(next.number)]);
    if (next.number + 1 < offer.branches) push(branch_of(offers, next.offer, next.number + 1, wrong));
  }
  for (size_t i = 0; i < kept; ++i) ++branches_[taken_[i]];
}

std::span<const int32_t> DraftPlan::share(std::span<const DraftOffer> offers, int64_t rows, int64_t branches) {
  lengths_.clear();
  branches_.assign(offers.size(), 0);
  auto left = std::ssize(offers);
  for (const DraftOffer& offer : offers) {
    lengths_.push_back(static_cast<int32_t>(std::min<int64_t>(offer.tokens, rows / left--)));
    rows -= lengths_.back();
  }
  for (int32_t number = 0; number < kMostBranches; ++number) {
    for (size_t i = 0; i < offers.size(); ++i) {
      const int32_t needed = 1 + lengths_[i];
      if (needed == 1 || number >= offers[i].branches || branches == 0 || needed > rows) continue;
      ++branches_[i];
      --branches;
      rows -= needed;
    }
  }
  return lengths_;
}

}  // namespace millrace
