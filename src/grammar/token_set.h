// The tokens of a vocabulary as one set of characters sees them, such as those of a JSON string: which begin with
// characters of it, at once or behind another byte.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/pushdown.h"
#include "grammar/token_family.h"
#include "grammar/token_trie.h"

namespace millrace {

class TokenSet {
 public:
  // Nothing where the tokens are too few to be worth it. `tokens` as TokenTrie wants them; their bytes stay theirs.
  static std::shared_ptr<const TokenSet> make(const CodeSet& characters, std::span<const TokenTrie::Token> tokens,
                                              int64_t vocabulary);

  using Row = std::array<int16_t, 256>;  // where each byte of a character leads: a row, kWhole or kNone
  static constexpr int16_t kNone = -1, kWhole = -2;

  const std::vector<Row>& character() const { return character_; }  // reads one of the set, from row 0 on
  const TokenFamily& plain() const { return plain_; }               // tokens that begin with the set
  const TokenTrie& rest() const { return rest_; }                   // others
  // All tokens, as they are behind their first byte; none where few of them go on with the set.
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
