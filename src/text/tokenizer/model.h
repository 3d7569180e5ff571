// The component of a tokenizer that encodes one word, a piece from the pre-tokenizer, into ids.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/tokenizer/hash.h"

namespace millrace {

// A part of a word during merging. The symbols of a word form a linked list.
struct Symbol {
  int32_t id;
  uint32_t begin, length;  // bytes in the word; length 0: merged into its neighbour
  int32_t previous, next;  // -1: none
};

// Working memory of models, reused for all words of a text.
struct TokenModelScratch {
  struct Candidate {
    uint32_t rank;
    int32_t left;  // merges this symbol with the next one
    int32_t id;    // id of the merged symbol
  };
  struct Step {  // the best segmentation up to an offset of the word
    double score;
    int32_t start;  // start of its last token; -1: none found yet
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

  // Splits a piece where no token can span the cut. The ids stay the same, and shorter words hit the word cache more
  // often.
  virtual void split(std::string_view piece, FunctionRef<void(std::string_view word)> visit) const { visit(piece); }
};

}  // namespace millrace
