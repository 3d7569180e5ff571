#include "grammar/automaton/token_set.h"

#include <map>
#include <utility>

#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kWorthwhile = 400;  // in tokens; smaller sets are not worth their memory

}  // namespace

std::shared_ptr<const TokenSet> TokenSet::make(const CodeSet& characters, std::span<const TokenTrie::Token> tokens,
                                               int64_t vocabulary) {
  std::shared_ptr<TokenSet> set(new TokenSet());
  set->tabulate(characters);
  std::vector<TokenFamily::Token> plain, behind;
  std::vector<TokenTrie::Token> rest;
  size_t with_set = 0;
  for (const TokenTrie::Token& token : tokens) {
    const TokenFamily::Token found = set->split(token.bytes, token.id);
    if (found.characters > 0) {
      plain.push_back(found);
    } else {
      rest.push_back(token);
    }
    behind.push_back(set->split(token.bytes.substr(1), token.id));
    behind.back().byte = static_cast<uint8_t>(token.bytes[0]);
    with_set += behind.back().characters > 0;
  }
  if (plain.size() + with_set < kWorthwhile) return nullptr;
  set->plain_ = TokenFamily(plain, true, vocabulary);
  if (2 * with_set >= tokens.size()) set->behind_ = TokenFamily(behind, false, vocabulary);
  set->rest_ = TokenTrie(rest);
  return set;
}

// Tabulates the automaton of one character completely, so that threads share it read-only.
void TokenSet::tabulate(const CodeSet& characters) {
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

// Splits a token behind its leading characters of the set.
TokenFamily::Token TokenSet::split(std::string_view bytes, int32_t id) const {
  TokenFamily::Token token{bytes, id, 0, 0};
  int16_t row = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    row = character_[static_cast<size_t>(row)][static_cast<unsigned char>(bytes[i])];
    if (row == kNone) break;
    if (row != kWhole) continue;
    row = 0;
    ++token.characters;
    token.end = i + 1;
  }
  return token;
}

}  // namespace millrace
