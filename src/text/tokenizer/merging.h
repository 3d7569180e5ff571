// The merge loop of BPE: merges neighbours, best pair first. O(n log n) for a word of n symbols.
#pragma once

#include <algorithm>

#include "text/tokenizer/model.h"

namespace millrace {

inline constexpr PairMap::Merge kNoMerge{0xFFFFFFFF, -1};

// `find(left, right)` returns the merge of two neighbours, or kNoMerge. The lowest rank merges first, ties from the
// left. Merged-away symbols end with length 0.
template <class Find>
class Merging {
 public:
  Merging(TokenModelScratch& scratch, Find find)
      : symbols_(scratch.symbols), merges_(scratch.merges), queue_(scratch.queue), find_(find) {}

  void run() {
    constexpr size_t kShort = 32;
    if (symbols_.size() > kShort) {
      run_queue();
    } else if (symbols_.size() > 1) {
      run_short();
    }
  }

 private:
  using Candidate = TokenModelScratch::Candidate;

  // Rescans all pairs after each merge: the fastest way for the usual words of a few symbols.
  void run_short() {
    merges_.clear();
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) merges_.push_back(find_(symbols_[i], symbols_[i + 1]));
    while (!merges_.empty()) {
      const auto best = std::min_element(merges_.begin(), merges_.end(),
                                         [](const auto& a, const auto& b) { return a.rank < b.rank; });
      if (best->id < 0) return;
      const size_t at = best - merges_.begin();
      symbols_[at].id = best->id;
      symbols_[at].length += symbols_[at + 1].length;
      symbols_.erase(symbols_.begin() + at + 1);
      merges_.erase(best);
      if (at > 0) merges_[at - 1] = find_(symbols_[at - 1], symbols_[at]);
      if (at < merges_.size()) merges_[at] = find_(symbols_[at], symbols_[at + 1]);
    }
  }

  void run_queue() {
    queue_.clear();
    const int32_t count = static_cast<int32_t>(symbols_.size());
    for (int32_t i = 0; i < count; ++i) {
      symbols_[i].previous = i - 1;
      symbols_[i].next = i + 1 < count ? i + 1 : -1;
      consider(i);
    }
    std::make_heap(queue_.begin(), queue_.end(), later);
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), later);
      const Candidate best = queue_.back();
      queue_.pop_back();
      Symbol& left = symbols_[best.left];
      if (left.length == 0 || left.next < 0) continue;
      if (find_(left, symbols_[left.next]).id != best.id) continue;  // stale: one of the two has changed
      merge(best);
    }
  }

  void merge(const Candidate& best) {
    Symbol& left = symbols_[best.left];
    Symbol& right = symbols_[left.next];
    left.id = best.id;
    left.length += right.length;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols_[left.next].previous = best.left;
    if (left.previous >= 0) push(left.previous);
    push(best.left);
  }

  void consider(int32_t left) {
    if (symbols_[left].next < 0) return;
    const PairMap::Merge merge = find_(symbols_[left], symbols_[symbols_[left].next]);
    if (merge.id >= 0) queue_.push_back({merge.rank, left, merge.id});
  }

  void push(int32_t left) {
    const size_t before = queue_.size();
    consider(left);
    if (queue_.size() > before) std::push_heap(queue_.begin(), queue_.end(), later);
  }

  static bool later(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }

  std::vector<Symbol>& symbols_;
  std::vector<PairMap::Merge>& merges_;
  std::vector<Candidate>& queue_;
  Find find_;
};

}  // namespace millrace
