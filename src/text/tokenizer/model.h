// The part of a tokenizer that turns one word (a piece made by the pre-tokenizer) into ids.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/tokenizer/hash.h"

namespace millrace {

// A piece of the word that is merged with its neighbours. Those of a word form a list.
struct Symbol {
  int32_t id;
  uint32_t begin, length;  // in the word; length 0: it was merged away
  int32_t previous, next;  // -1: none
};

// Memory that models use while they work, kept from word to word.
struct TokenModelScratch {
  struct Candidate {
    uint32_t rank;
    int32_t left;  // the symbol to be merged with its next
    int32_t id;    // what they become
  };
  struct Step {  // of the best way to an offset of the word
    double score;
    int32_t start;  // where its last token begins; -1: no way found yet
    int32_t id;
  };
  std::vector<Symbol> symbols;
  std::vector<PairMap::Merge> merges;
  std::vector<Candidate> queue;
  std::vector<Step> steps;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual void encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const = 0;

  // Splits a piece where no token can reach across, so that the same words meet again; the ids are the same as unsplit.
  virtual void split(std::string_view piece, FunctionRef<void(std::string_view word)> visit) const { visit(piece); }
};

}  // namespace millrace
