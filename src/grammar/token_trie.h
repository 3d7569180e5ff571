// The tokens of a vocabulary as a tree of their bytes, laid out in the order of a walk through it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/pushdown.h"

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

  // The tokens that have their first byte in common.
  struct Branch {
    uint8_t byte;
    uint32_t begin, end;
  };
  const std::vector<Branch>& branches() const { return branches_; }

  // Tells the place, in the order of all, of each token that the automaton can take from `from`. skip: whether those
  // from a place on to before another need not be told.
  template <class Visit, class Skip>
  void visit_allowed(Pushdown& automaton, Pushdown::State from, Visit visit, Skip skip) const {
    walk(
        automaton, from, 0, nodes_.size(), [&](const Node& node) { visit(node.before); },
        [&](const Node& node) {
          return skip(node.before, node.end < nodes_.size() ? nodes_[node.end].before : size_);
        });
  }
  // Sets the bits of those tokens.
  void add_allowed(Pushdown& automaton, Pushdown::State from, std::span<uint32_t> mask) const;
  void add_allowed(Pushdown& automaton, Pushdown::State from, const Branch& branch, std::span<uint32_t> mask) const;

  size_t memory() const { return nodes_.size() * sizeof(Node); }

 private:
  struct Node {
    int32_t token;    // that ends here, or -1
    uint32_t end;     // the first node that is not below this one
    uint32_t before;  // tokens that end at nodes before it
    uint16_t depth;   // of its parent: 0 for the first bytes of tokens
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
