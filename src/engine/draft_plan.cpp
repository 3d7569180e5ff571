#include "engine/draft_plan.h"

#include <algorithm>

namespace millrace {

void DraftPlan::reserve(size_t sequences, size_t rows) {
  queue_.reserve(sequences);
  lengths_.reserve(sequences);
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

// Takes the likeliest of all next tokens again and again, and keeps the number of rows with the best rate. The cost of
// a step grows in jumps, so a later row may pay although the next one does not.
std::span<const int32_t> DraftPlan::choose(std::span<const DraftOffer> offers, const Limits& limits,
                                           FunctionRef<double(const DraftedRows&)> step_us) {
  queue_.clear();
  taken_.clear();
  lengths_.assign(offers.size(), 0);
  for (size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].tokens > 0) push({offers[i].chance, i, 0});
  }
  auto tokens = static_cast<double>(limits.sequences);
  double best = (1 + limits.margin) * tokens / step_us({});
  size_t kept = 0;
  DraftedRows rows;
  while (!queue_.empty() && rows.tokens < limits.tokens) {
    std::pop_heap(queue_.begin(), queue_.end(), comes_later);
    const Next next = queue_.back();
    queue_.pop_back();
    taken_.push_back(next.offer);
    tokens += next.gain;
    ++rows.tokens;
    rows.sequences += next.token == 0 ? 1 : 0;
    rows.longest = std::max<int64_t>(rows.longest, next.token + 1);
    const double rate = tokens / step_us(rows);
    if (rate > best) {
      best = rate;
      kept = taken_.size();
    }
    const DraftOffer& offer = offers[next.offer];
    if (next.token + 1 < offer.tokens) push({next.gain * offer.chance, next.offer, next.token + 1});
  }
  for (size_t i = 0; i < kept; ++i) ++lengths_[taken_[i]];
  return lengths_;
}

std::span<const int32_t> DraftPlan::share(std::span<const DraftOffer> offers, int64_t tokens) {
  lengths_.clear();
  auto left = std::ssize(offers);
  for (const DraftOffer& offer : offers) {
    lengths_.push_back(static_cast<int32_t>(std::min<int64_t>(offer.tokens, tokens / left--)));
    tokens -= lengths_.back();
  }
  return lengths_;
}

}  // namespace millrace
