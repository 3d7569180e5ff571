// The tokens of a vocabulary sorted by one set of characters, such as those of a JSON string: tokens that begin with
// characters of the set, at once or behind one other byte.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/automaton/pushdown.h"
#include "grammar/automaton/token_family.h"
#include "grammar/automaton/token_trie.h"

namespace millrace {

class TokenSet {
 public:
  // Null if too few tokens begin with the set. `tokens` are sorted as for TokenTrie, and their bytes must outlive the
  // set.
  static std::shared_ptr<const TokenSet> make(const CodeSet& characters, std::span<const TokenTrie::Token> tokens,
                                              int64_t vocabulary);

  using Row = std::array<int16_t, 256>;  // next state by byte of a character: a row, kWhole or kNone
  static constexpr int16_t kNone = -1, kWhole = -2;

  const std::vector<Row>& character() const { return character_; }  // automaton of one character, from row 0 on
  const TokenFamily& plain() const { return plain_; }               // tokens that begin with the set
  const TokenTrie& rest() const { return rest_; }                   // the other tokens
  // All tokens without their first byte; empty if few of them continue with the set.
  const TokenFamily& behind() const { return behind_; }
  size_t memory() const { return plain_.memory() + rest_.memory() + behind_.memory(); }

 private:
  TokenSet() = default;
  void tabulate(const CodeSet& characters);
  TokenFamily::Token split(std::string_view bytes, int32_t id) const;

  std::vector<Row> character_;
  TokenFamily plain_, behind_;
  TokenTrie rest_;
};

}  // namespace millrace
