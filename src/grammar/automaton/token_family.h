// Tokens that begin with characters of one set. If the grammar allows any characters of the set, tokens inside of the
// set are allowed without a walk, and for the others only the bytes behind the set need one.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/automaton/pushdown.h"
#include "grammar/automaton/token_trie.h"

namespace millrace {

// The number of arbitrary characters of the set that can follow a state.
struct SetRun {
  size_t length = 0;                     // up to kLongestRun
  bool closed = false;                   // no further one can follow
  bool forever = false;                  // any number
  std::vector<Pushdown::State> between;  // the states after one or more of them

  static constexpr size_t kLongestRun = 24;  // few tokens have more characters
  bool covers() const { return length == kLongestRun || (closed && length > 0); }
};

class TokenFamily {
 public:
  struct Token {
    std::string_view bytes;
    int32_t id;
    size_t characters;  // leading characters of the set
    size_t end;         // end of those, in bytes
    uint8_t byte = 0;   // first byte of the token where `bytes` is the rest of it
  };

  TokenFamily() = default;
  // whole_at_once: tokens inside of the set are stored as masks, otherwise by Token::byte.
  TokenFamily(std::span<const Token> tokens, bool whole_at_once, int64_t vocabulary);

  // Whether more tokens are allowed without a walk than may need one.
  bool worthwhile() const { return whole_count_ >= cut_.size(); }
  // Tokens inside of the set.
  size_t whole() const { return whole_count_; }
  size_t whole(uint8_t byte) const { return whole_[byte].size(); }

  // Sets the bits of all tokens that are allowed from `from`, at which a covering run starts; only tokens behind one of
  // `bytes`.
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
    uint32_t first, size;  // range in cut_
  };

  void add_cut(std::vector<Token> tokens);
  void add_cut_allowed(Pushdown& automaton, Pushdown::State from, const SetRun& run, const std::bitset<256>& bytes,
                       std::span<uint32_t> mask) const;

  size_t whole_count_ = 0;
  std::array<std::vector<Whole>, 256> whole_;  // by the byte before them
  std::array<std::vector<uint32_t>, SetRun::kLongestRun + 1>
      whole_masks_;       // entry n: the tokens of at most n characters
  std::vector<Cut> cut_;  // sorted by the bytes behind the set
  std::vector<Tail> tails_;
  TokenTrie tail_trie_;
  std::vector<Cut> long_;  // tokens that begin with more than kLongestRun characters of the set
};

}  // namespace millrace
