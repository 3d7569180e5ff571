#include "grammar/automaton/token_family.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sampling/constraint.h"

namespace millrace {
namespace {

bool can_take(Pushdown& automaton, Pushdown::State state, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && state != Pushdown::kDead; ++i)
    state = automaton.next(state, static_cast<uint8_t>(bytes[i]));
  return state != Pushdown::kDead;
}

void set_bit(std::span<uint32_t> mask, int32_t token) { mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32); }

// The first eight bytes as a big-endian integer: a sort key that rarely ties.
uint64_t order_of(std::string_view text) {
  uint64_t order = 0;
  for (size_t i = 0; i < 8; ++i) order = order << 8 | (i < text.size() ? static_cast<unsigned char>(text[i]) : 0);
  return order;
}

}  // namespace

TokenFamily::TokenFamily(std::span<const Token> tokens, bool whole_at_once, int64_t vocabulary) {
  constexpr size_t kLongest = SetRun::kLongestRun;
  if (whole_at_once) {
    for (auto& mask : whole_masks_) mask.resize(mask_words(vocabulary));
  }
  std::vector<Token> cut;
  for (const Token& token : tokens) {
    const bool whole = token.end == token.bytes.size();
    whole_count_ += whole;
    if (token.characters > kLongest) {
      long_.push_back({token.bytes, token.id, token.byte});
    } else if (!whole) {
      cut.push_back(token);
    } else if (whole_at_once) {
      set_bit(whole_masks_[token.characters], token.id);
    } else {
      whole_[token.byte].push_back({token.id, static_cast<uint16_t>(token.characters)});
    }
  }
  for (size_t length = 1; length <= kLongest && whole_at_once; ++length) {
    for (size_t word = 0; word < whole_masks_[length].size(); ++word)
      whole_masks_[length][word] |= whole_masks_[length - 1][word];
  }
  add_cut(std::move(cut));
}

void TokenFamily::add_cut(std::vector<Token> tokens) {
  struct Sorted {
    uint64_t order;
    std::string_view tail;
    const Token* token;
    bool operator<(const Sorted& other) const { return order != other.order ? order < other.order : tail < other.tail; }
  };
  std::vector<Sorted> sorted;
  for (const Token& token : tokens) {
    const std::string_view tail = token.bytes.substr(token.end);
    sorted.push_back({order_of(tail), tail, &token});
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<TokenTrie::Token> tails;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i == 0 || sorted[i].tail != sorted[i - 1].tail) {
      tails.push_back({sorted[i].tail, 0});
      tails_.push_back({static_cast<uint32_t>(i), 0});
    }
    ++tails_.back().size;
    const Token& token = *sorted[i].token;
    cut_.push_back({token.bytes, token.id, token.byte});
  }
  tail_trie_ = TokenTrie(tails);
}

void TokenFamily::add_allowed(Pushdown& automaton, Pushdown::State from, const SetRun& run,
                              const std::bitset<256>& bytes, std::span<uint32_t> mask) const {
  const std::vector<uint32_t>& allowed = whole_masks_[run.length];
  for (size_t word = 0; word < allowed.size(); ++word) mask[word] |= allowed[word];
  for (size_t byte = 0; byte < bytes.size(); ++byte) {
    if (!bytes[byte]) continue;
    for (const Whole& token : whole_[byte]) {
      if (token.characters <= run.length) set_bit(mask, token.id);
    }
  }
  for (const Cut& token : long_) {
    if (run.length == SetRun::kLongestRun && bytes[token.byte] && can_take(automaton, from, token.bytes))
      set_bit(mask, token.id);
  }
  if (!cut_.empty()) add_cut_allowed(automaton, from, run, bytes, mask);
}

// A token is allowed only if the automaton accepts its tail behind the set from one of the states of the run.
void TokenFamily::add_cut_allowed(Pushdown& automaton, Pushdown::State from, const SetRun& run,
                                  const std::bitset<256>& bytes, std::span<uint32_t> mask) const {
  // Union-find: from each tail, the next one that is not found yet.
  std::vector<uint32_t> next(tails_.size() + 1);
  std::iota(next.begin(), next.end(), 0u);
  const auto first_unknown = [&](uint32_t at) {
    while (next[at] != at) at = next[at] = next[next[at]];
    return at;
  };
  const bool surely = run.between.size() == 1 && run.between[0] == from;
  const auto look_at = [&](uint32_t index) {
    if (next[index] != index) return;
    next[index] = index + 1;
    const Tail& tail = tails_[index];
    for (uint32_t i = tail.first; i < tail.first + tail.size; ++i) {
      if (bytes[cut_[i].byte] && (surely || can_take(automaton, from, cut_[i].bytes))) set_bit(mask, cut_[i].id);
    }
  };
  const auto all_known = [&](uint32_t begin, uint32_t end) { return first_unknown(begin) >= end; };
  tail_trie_.visit_allowed(automaton, from, look_at, all_known);
  for (const Pushdown::State state : run.between) {
    if (state != from) tail_trie_.visit_allowed(automaton, state, look_at, all_known);
  }
}

size_t TokenFamily::memory() const {
  size_t whole = 0;
  for (const auto& mask : whole_masks_) whole += mask.size() * sizeof(uint32_t);
  for (const auto& tokens : whole_) whole += tokens.size() * sizeof(Whole);
  return whole + tail_trie_.memory() + (cut_.size() + long_.size()) * sizeof(Cut) + tails_.size() * sizeof(Tail);
}

}  // namespace millrace
