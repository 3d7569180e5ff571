// The tokens of a vocabulary as a byte trie, stored in depth-first order.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/automaton/pushdown.h"

namespace millrace {

class TokenTrie {
 public:
  struct Token {
    std::string_view bytes;
    int32_t id;
  };

  TokenTrie() = default;
  // Sorted by bytes; no duplicates, no empty ones.
  explicit TokenTrie(std::span<const Token> tokens);

  // The tokens with one first byte.
  struct Branch {
    uint8_t byte;
    uint32_t begin, end;
  };
  const std::vector<Branch>& branches() const { return branches_; }

  // Calls back with the sorted index of each token that the automaton accepts from `from`. skip(first, end): whether
  // the tokens of this index range are not needed.
  template <class Visit, class Skip>
  void visit_allowed(Pushdown& automaton, Pushdown::State from, Visit visit, Skip skip) const {
    walk(
        automaton, from, 0, nodes_.size(), [&](const Node& node) { visit(node.before); },
        [&](const Node& node) {
          return skip(node.before, node.end < nodes_.size() ? nodes_[node.end].before : size_);
        });
  }
  // Sets the bits of the accepted tokens.
  void add_allowed(Pushdown& automaton, Pushdown::State from, std::span<uint32_t> mask) const;
  void add_allowed(Pushdown& automaton, Pushdown::State from, const Branch& branch, std::span<uint32_t> mask) const;

  size_t memory() const { return nodes_.size() * sizeof(Node); }

 private:
  struct Node {
    int32_t token;    // the token that ends here, or -1
    uint32_t end;     // end of its subtree
    uint32_t before;  // number of tokens that end at earlier nodes
    uint16_t depth;   // 0 for first bytes of tokens
    uint8_t byte;
  };
  template <class Visit, class Skip>
  void walk(Pushdown& automaton, Pushdown::State from, size_t begin, size_t end, Visit visit, Skip skip) const {
    std::vector<Pushdown::State> states(deepest_ + 1);
    states[0] = from;
    for (size_t i = begin; i < end;) {
      const Node& node = nodes_[i];
      const Pushdown::State state = skip(node) ? Pushdown::kDead : automaton.next(states[node.depth], node.byte);
      if (state == Pushdown::kDead) {
        i = node.end;
        continue;
      }
      if (node.token >= 0) visit(node);
      states[node.depth + 1u] = state;
      ++i;
    }
  }

  std::vector<Node> nodes_;
  std::vector<Branch> branches_;
  size_t deepest_ = 0;
  uint32_t size_ = 0;  // tokens
};

}  // namespace millrace
