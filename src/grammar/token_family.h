// Tokens that begin with characters of one set. Where a grammar lets all of those characters pass, tokens that are made
// of nothing else are allowed at once, and of the others only what comes behind those characters has to be looked at.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/pushdown.h"
#include "grammar/token_trie.h"

namespace millrace {

// How many characters of the set, whichever they are, can follow a state.
struct SetRun {
  size_t length = 0;                     // up to kLongestRun
  bool closed = false;                   // none can after them
  bool forever = false;                  // as many as there are
  std::vector<Pushdown::State> between;  // the states behind one and more of them

  static constexpr size_t kLongestRun = 24;  // few tokens have more characters
  bool covers() const { return length == kLongestRun || (closed && length > 0); }
};

class TokenFamily {
 public:
  struct Token {
    std::string_view bytes;
    int32_t id;
    size_t characters;  // of the set that it begins with
    size_t end;         // of them, in bytes
    uint8_t byte = 0;   // before it
  };

  TokenFamily() = default;
  // whole_at_once: those of nothing but the set are kept as masks; else by the byte before them.
  TokenFamily(std::span<const Token> tokens, bool whole_at_once, int64_t vocabulary);

  // Whether more tokens are allowed at once than may have to be looked at.
  bool worthwhile() const { return whole_count_ >= cut_.size(); }
  // Tokens of nothing but the set.
  size_t whole() const { return whole_count_; }
  size_t whole(uint8_t byte) const { return whole_[byte].size(); }

  // Sets the bits of all tokens that are allowed from `from`, where a run that covers starts; only those behind one of
  // the bytes.
  void add_allowed(Pushdown& automaton, Pushdown::State from, const SetRun& run, const std::bitset<256>& bytes,
                   std::span<uint32_t> mask) const;
  size_t memory() const;

 private:
  struct Whole {
    int32_t id;
    uint16_t characters;
  };
  struct Cut {
    std::string_view bytes;
    int32_t id;
    uint8_t byte;
  };
  struct Tail {
    uint32_t first, size;  // in cut_
  };

  void add_cut(std::vector<Token> tokens);
  void add_cut_allowed(Pushdown& automaton, Pushdown::State from, const SetRun& run, const std::bitset<256>& bytes,
                       std::span<uint32_t> mask) const;

  size_t whole_count_ = 0;
  std::array<std::vector<Whole>, 256> whole_;                               // by the byte before them
  std::array<std::vector<uint32_t>, SetRun::kLongestRun + 1> whole_masks_;  // of so many characters at most
  std::vector<Cut> cut_;  // what comes behind the set tells them apart: in the order of that
  std::vector<Tail> tails_;
  TokenTrie tail_trie_;
  std::vector<Cut> long_;  // begin with more characters than a run has
};

}  // namespace millrace
