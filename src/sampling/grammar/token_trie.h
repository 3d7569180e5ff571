// The tokens of a vocabulary as a tree of their bytes, laid out in the order of a walk through it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sampling/grammar/pushdown.h"

namespace millrace {

class TokenTrie {
 public:
  struct Token {
    std::string_view bytes;
    int32_t id;
  };

  TokenTrie() = default;
  // Sorted by bytes, none twice, none empty.
  explicit TokenTrie(std::span<const Token> tokens);

  // Sets the bit of each token that the automaton can take from `from`.
  void add_allowed(Pushdown& automaton, Pushdown::State from, std::span<uint32_t> mask) const;

  size_t memory() const { return nodes_.size() * sizeof(Node); }

 private:
  struct Node {
    int32_t token;   // that ends here, or -1
    uint32_t end;    // the first node that is not below this one
    uint16_t depth;  // of its parent: 0 for the first bytes of tokens
    uint8_t byte;
  };
  std::vector<Node> nodes_;
  size_t deepest_ = 0;
};

}  // namespace millrace
