// SentencePiece's unigram model: the segmentation of a word with the largest sum of scores.
#pragma once

#include <memory>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/vocabulary.h"

namespace millrace {

class Unigram : public TokenModel {
 public:
  // `usable`: by id, false for tokens that text must not produce. `unknown` may be Vocabulary::kNone. Throws BadFile
  // for overlong usable tokens, which would make the time per character unbounded.
  Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores, const std::vector<bool>& usable,
          int32_t unknown, bool byte_fallback);

  void encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const override;

 private:
  void find_best(std::string_view word, std::vector<TokenModelScratch::Step>& steps) const;
  void push_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<double> scores_;
  int32_t unknown_;
  bool byte_fallback_;
  double unknown_score_;
  ByteTrie trie_;
};

}  // namespace millrace
