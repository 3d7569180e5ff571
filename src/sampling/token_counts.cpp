#include "sampling/token_counts.h"

namespace millrace {

TokenCounts::TokenCounts(int32_t vocab, int32_t window)
    : counts_(static_cast<size_t>(vocab)), place_(static_cast<size_t>(vocab)), window_(window) {
  distinct_.reserve(static_cast<size_t>(vocab));
  recent_.reserve(static_cast<size_t>(window));
}

void TokenCounts::add(int32_t token) {
  if (token < 0 || static_cast<size_t>(token) >= counts_.size()) return;
  if (window_ > 0) {
    if (recent_.size() < static_cast<size_t>(window_)) {
      recent_.push_back(token);
    } else {
      forget(recent_[oldest_]);
      recent_[oldest_] = token;
      oldest_ = (oldest_ + 1) % recent_.size();
    }
  }
  const auto index = static_cast<size_t>(token);
  if (counts_[index]++ == 0) {
    place_[index] = static_cast<int32_t>(distinct_.size());
    distinct_.push_back(token);
  }
}

void TokenCounts::forget(int32_t token) {
  if (--counts_[static_cast<size_t>(token)] > 0) return;
  const int32_t last = distinct_.back();
  const int32_t place = place_[static_cast<size_t>(token)];
  distinct_[static_cast<size_t>(place)] = last;
  place_[static_cast<size_t>(last)] = place;
  distinct_.pop_back();
}

}  // namespace millrace
