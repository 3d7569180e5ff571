// Occurrences of each token among all or the last tokens, for the penalties.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

class TokenCounts {
 public:
  TokenCounts() = default;                     // counts nothing
  TokenCounts(int32_t vocab, int32_t window);  // window 0: counts all tokens

  void add(int32_t token);  // ignores ids outside of the vocabulary

  size_t distinct() const { return distinct_.size(); }

  // Calls visit(token, count) for every token that occurred, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const int32_t token : distinct_) visit(token, counts_[static_cast<size_t>(token)]);
  }

 private:
  void forget(int32_t token);

  std::vector<int32_t> counts_;    // by token
  std::vector<int32_t> place_;     // by token: index in distinct_
  std::vector<int32_t> distinct_;  // tokens with a count above 0
  std::vector<int32_t> recent_;    // a ring of the last tokens
  size_t oldest_ = 0;
  int32_t window_ = 0;
};

}  // namespace millrace
