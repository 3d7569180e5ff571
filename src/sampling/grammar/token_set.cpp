#include "sampling/grammar/token_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "sampling/constraint.h"

namespace millrace {
namespace {

constexpr size_t kWorthwhile = 400;  // tokens
constexpr size_t kMostStates = 8;    // at once: beyond that tokens are looked at one by one
constexpr size_t kMostPlaces = 64;   // inside of characters

template <class T>
bool add_once(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) != list.end()) return false;
  list.push_back(value);
  return true;
}

}  // namespace

std::shared_ptr<const TokenSet> TokenSet::make(const CharSet& characters, std::span<const TokenTrie::Token> tokens,
                                               int64_t vocabulary) {
  std::shared_ptr<TokenSet> set(new TokenSet());
  set->tabulate(characters);
  const bool has_blank = characters.contains(' ');
  std::vector<TokenTrie::Token> plain, blank, rest;
  std::vector<size_t> plain_lengths, blank_lengths;
  for (const TokenTrie::Token& token : tokens) {
    const size_t length = set->characters_in(token.bytes);
    const size_t behind = !has_blank && token.bytes[0] == ' ' ? set->characters_in(token.bytes.substr(1)) : 0;
    if (length > 0 && length <= kLongest) {
      plain.push_back(token);
      plain_lengths.push_back(length);
    } else if (behind > 0 && behind <= kLongest) {
      blank.push_back({token.bytes.substr(1), token.id});
      blank_lengths.push_back(behind);
    } else {
      rest.push_back(token);
    }
  }
  if (plain.size() + blank.size() < kWorthwhile) return nullptr;
  set->plain_ = make_family(plain, plain_lengths, vocabulary);
  set->blank_ = make_family(blank, blank_lengths, vocabulary);
  set->rest_ = TokenTrie(rest);
  return set;
}

TokenSet::Family TokenSet::make_family(const std::vector<TokenTrie::Token>& tokens, const std::vector<size_t>& lengths,
                                       int64_t vocabulary) {
  Family family;
  for (auto& mask : family.up_to) mask.resize(mask_words(vocabulary));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<size_t>(tokens[i].id);
    family.up_to[lengths[i]][id / 32] |= 1u << (id % 32);
    ++family.count[lengths[i]];
  }
  for (size_t length = 1; length <= kLongest; ++length) {
    family.count[length] += family.count[length - 1];
    for (size_t word = 0; word < family.up_to[length].size(); ++word)
      family.up_to[length][word] |= family.up_to[length - 1][word];
  }
  family.trie = TokenTrie(tokens);
  return family;
}

// The automaton of one character, whole: no thread that uses the set changes it.
void TokenSet::tabulate(const CharSet& characters) {
  Pushdown automaton(compile_set(characters));
  std::map<Pushdown::State, int16_t> rows{{automaton.start(), 0}};
  std::vector<Pushdown::State> states{automaton.start()};
  for (size_t i = 0; i < states.size(); ++i) {
    Row row;
    for (int byte = 0; byte < 256; ++byte) {
      const Pushdown::State to = automaton.next(states[i], static_cast<uint8_t>(byte));
      int16_t& cell = row[static_cast<size_t>(byte)];
      cell = to == Pushdown::kDead ? kNone : kWhole;
      if (to == Pushdown::kDead || automaton.accepting(to)) continue;
      const auto [known, fresh] = rows.try_emplace(to, static_cast<int16_t>(states.size()));
      if (fresh) states.push_back(to);
      MR_ASSERT(states.size() < INT16_MAX);
      cell = known->second;
    }
    character_.push_back(row);
  }
}

// 0 where other bytes are in it, or a part of a character.
size_t TokenSet::characters_in(std::string_view bytes) const {
  size_t count = 0;
  int16_t row = 0;
  for (const char byte : bytes) {
    row = character_[static_cast<size_t>(row)][static_cast<unsigned char>(byte)];
    if (row == kNone) return 0;
    if (row == kWhole) ++count, row = 0;
  }
  return row == 0 ? count : 0;
}

std::vector<uint8_t> TokenSet::representatives(const GrammarProgram& grammar) const {
  std::vector<uint8_t> bytes;
  const auto same = [&](uint8_t a, uint8_t b) {
    return grammar.kind_of_byte[a] == grammar.kind_of_byte[b] &&
           std::all_of(character_.begin(), character_.end(), [&](const Row& row) { return row[a] == row[b]; });
  };
  for (int byte = 0; byte < 256; ++byte) {
    const auto one = static_cast<uint8_t>(byte);
    if (std::none_of(bytes.begin(), bytes.end(), [&](uint8_t known) { return same(known, one); })) bytes.push_back(one);
  }
  return bytes;
}

// Whether every character of the set can follow each of the states; `to`: the states behind them.
bool TokenSet::one_more(Pushdown& automaton, const std::vector<Pushdown::State>& from,
                        std::span<const uint8_t> representatives, std::vector<Pushdown::State>& to) const {
  std::vector<std::pair<int16_t, Pushdown::State>> places;
  for (const Pushdown::State state : from) places.emplace_back(0, state);
  to.clear();
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [row, state] = places[i];
    for (const uint8_t byte : representatives) {
      const int16_t inside = character_[static_cast<size_t>(row)][byte];
      if (inside == kNone) continue;
      const Pushdown::State next = automaton.next(state, byte);
      if (next == Pushdown::kDead) return false;
      if (inside == kWhole) {
        add_once(to, next);
      } else {
        add_once(places, {inside, next});
      }
      if (to.size() > kMostStates || places.size() > kMostPlaces) return false;
    }
  }
  std::sort(to.begin(), to.end());
  return true;
}

bool TokenSet::none_more(Pushdown& automaton, const std::vector<Pushdown::State>& from,
                         std::span<const uint8_t> representatives) const {
  for (const Pushdown::State state : from) {
    for (const uint8_t byte : representatives) {
      if (character_[0][byte] != kNone && automaton.next(state, byte) != Pushdown::kDead) return false;
    }
  }
  return true;
}

TokenSet::Run TokenSet::run(Pushdown& automaton, Pushdown::State from, std::span<const uint8_t> representatives) const {
  std::vector<Pushdown::State> states{from}, next;
  for (size_t length = 0; length < kLongest; ++length) {
    if (!one_more(automaton, states, representatives, next))
      return {length, none_more(automaton, states, representatives)};
    if (next == states) break;  // and so on for ever
    states.swap(next);
  }
  return {kLongest, false};
}

size_t TokenSet::gain(const Family& family, Run run) {
  return run.length == kLongest || run.closed ? family.count[run.length] : 0;
}

TokenSet::Reach TokenSet::reach(Pushdown& automaton, Pushdown::State from,
                                std::span<const uint8_t> representatives) const {
  Reach reach;
  reach.plain = run(automaton, from, representatives);
  reach.gain = gain(plain_, reach.plain);
  if (blank_.count[kLongest] == 0) return reach;
  reach.behind_blank = automaton.next(from, ' ');
  if (reach.behind_blank == Pushdown::kDead) return reach;
  reach.blank = run(automaton, reach.behind_blank, representatives);
  reach.gain += gain(blank_, reach.blank);
  return reach;
}

void TokenSet::add_family(const Family& family, Run run, Pushdown& automaton, Pushdown::State from,
                          std::span<uint32_t> mask) {
  if (run.length < kLongest && !run.closed) return family.trie.add_allowed(automaton, from, mask);
  const std::vector<uint32_t>& allowed = family.up_to[run.length];
  for (size_t word = 0; word < allowed.size(); ++word) mask[word] |= allowed[word];
}

void TokenSet::add_allowed(Pushdown& automaton, Pushdown::State from, const Reach& reach,
                           std::span<uint32_t> mask) const {
  add_family(plain_, reach.plain, automaton, from, mask);
  if (reach.behind_blank != Pushdown::kDead) add_family(blank_, reach.blank, automaton, reach.behind_blank, mask);
  rest_.add_allowed(automaton, from, mask);
}

size_t TokenSet::memory() const {
  return 2 * plain_.up_to.size() * plain_.up_to[0].size() * sizeof(uint32_t) + plain_.trie.memory() +
         blank_.trie.memory() + rest_.memory();
}

}  // namespace millrace
