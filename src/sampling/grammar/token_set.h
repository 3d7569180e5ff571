// The tokens made of characters of one set, such as those of a JSON string: where a grammar lets all of them pass, they
// are allowed at once, and only the few others have to be looked at.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sampling/grammar/pushdown.h"
#include "sampling/grammar/token_trie.h"

namespace millrace {

class TokenSet {
 public:
  // Nothing where the tokens are too few to be worth it. `tokens` as TokenTrie wants them.
  static std::shared_ptr<const TokenSet> make(const CharSet& characters, std::span<const TokenTrie::Token> tokens,
                                              int64_t vocabulary);

  // One byte of each kind that neither the set nor the grammar tells apart.
  std::vector<uint8_t> representatives(const GrammarProgram& grammar) const;

  // How many characters of the set, whichever they are, can follow a state; `closed`: none can after them.
  struct Run {
    size_t length = 0;
    bool closed = false;
  };
  struct Reach {
    Pushdown::State behind_blank = Pushdown::kDead;
    Run plain, blank;
    size_t gain = 0;  // tokens that need no look of their own
  };
  Reach reach(Pushdown& automaton, Pushdown::State from, std::span<const uint8_t> representatives) const;

  // Sets the bits of all tokens of the vocabulary that are allowed, of the set and others.
  void add_allowed(Pushdown& automaton, Pushdown::State from, const Reach& reach, std::span<uint32_t> mask) const;

  size_t memory() const;

 private:
  static constexpr size_t kLongest = 16;  // characters of a token; longer ones are rare and looked at each

  // Words with and without a blank in front of them are a family each.
  struct Family {
    std::array<std::vector<uint32_t>, kLongest + 1> up_to;  // tokens of at most so many characters, as a mask
    std::array<size_t, kLongest + 1> count{};
    TokenTrie trie;
  };
  using Row = std::array<int16_t, 256>;  // where each byte leads: a row, kWhole or kNone
  static constexpr int16_t kNone = -1, kWhole = -2;

  TokenSet() = default;
  void tabulate(const CharSet& characters);
  size_t characters_in(std::string_view bytes) const;
  Run run(Pushdown& automaton, Pushdown::State from, std::span<const uint8_t> representatives) const;
  bool one_more(Pushdown& automaton, const std::vector<Pushdown::State>& from, std::span<const uint8_t> representatives,
                std::vector<Pushdown::State>& to) const;
  bool none_more(Pushdown& automaton, const std::vector<Pushdown::State>& from,
                 std::span<const uint8_t> representatives) const;
  static Family make_family(const std::vector<TokenTrie::Token>& tokens, const std::vector<size_t>& lengths,
                            int64_t vocabulary);
  static void add_family(const Family& family, Run run, Pushdown& automaton, Pushdown::State from,
                         std::span<uint32_t> mask);
  static size_t gain(const Family& family, Run run);

  std::vector<Row> character_;  // reads one character of the set, from row 0 on
  Family plain_, blank_;
  TokenTrie rest_;
};

}  // namespace millrace
