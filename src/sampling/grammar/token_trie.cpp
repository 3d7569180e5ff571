#include "sampling/grammar/token_trie.h"

#include <algorithm>

#include "base/error.h"

namespace millrace {

TokenTrie::TokenTrie(std::span<const Token> tokens) {
  std::vector<uint32_t> path;  // the nodes of the token before
  std::string_view before;
  for (const Token& token : tokens) {
    MR_ASSERT(!token.bytes.empty() && token.bytes.size() < UINT16_MAX);
    const auto same = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), token.bytes.begin(), token.bytes.end()).first - before.begin());
    for (; path.size() > same; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t depth = same; depth < token.bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({-1, 0, static_cast<uint16_t>(depth), static_cast<uint8_t>(token.bytes[depth])});
    }
    nodes_.back().token = token.id;
    deepest_ = std::max(deepest_, token.bytes.size());
    before = token.bytes;
  }
  for (const uint32_t open : path) nodes_[open].end = static_cast<uint32_t>(nodes_.size());
}

void TokenTrie::add_allowed(Pushdown& automaton, Pushdown::State from, std::span<uint32_t> mask) const {
  std::vector<Pushdown::State> states(deepest_ + 1);
  states[0] = from;
  for (size_t i = 0; i < nodes_.size();) {
    const Node& node = nodes_[i];
    const Pushdown::State state = automaton.next(states[node.depth], node.byte);
    if (state == Pushdown::kDead) {
      i = node.end;
      continue;
    }
    if (node.token >= 0) mask[static_cast<size_t>(node.token) / 32] |= 1u << (node.token % 32);
    states[node.depth + 1u] = state;
    ++i;
  }
}

}  // namespace millrace
