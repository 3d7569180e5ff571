#include "grammar/automaton/token_trie.h"

#include <algorithm>

#include "base/error.h"

namespace millrace {

TokenTrie::TokenTrie(std::span<const Token> tokens) {
  std::vector<uint32_t> path;  // nodes of the previous token
  std::string_view before;
  for (const Token& token : tokens) {
    MR_ASSERT(!token.bytes.empty() && token.bytes.size() < UINT16_MAX);
    const auto same = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), token.bytes.begin(), token.bytes.end()).first - before.begin());
    for (; path.size() > same; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t depth = same; depth < token.bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({-1, 0, size_, static_cast<uint16_t>(depth), static_cast<uint8_t>(token.bytes[depth])});
    }
    nodes_.back().token = token.id;
    ++size_;
    deepest_ = std::max(deepest_, token.bytes.size());
    before = token.bytes;
  }
  for (const uint32_t open : path) nodes_[open].end = static_cast<uint32_t>(nodes_.size());
  for (uint32_t i = 0; i < nodes_.size(); i = nodes_[i].end) branches_.push_back({nodes_[i].byte, i, nodes_[i].end});
}

void TokenTrie::add_allowed(Pushdown& automaton, Pushdown::State from, std::span<uint32_t> mask) const {
  add_allowed(automaton, from, {0, 0, static_cast<uint32_t>(nodes_.size())}, mask);
}

void TokenTrie::add_allowed(Pushdown& automaton, Pushdown::State from, const Branch& branch,
                            std::span<uint32_t> mask) const {
  const auto set_bit = [&](const Node& node) { mask[static_cast<size_t>(node.token) / 32] |= 1u << (node.token % 32); };
  walk(automaton, from, branch.begin, branch.end, set_bit, [](const Node&) { return false; });
}

}  // namespace millrace
