// The unigram language model of SentencePiece: of all ways to cut a word into tokens, the one with the best sum of
// scores.
#pragma once

#include <memory>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/vocabulary.h"

namespace millrace {

class Unigram : public TokenModel {
 public:
  // `usable`: by id, whether the token may come out of a text. `unknown` may be Vocabulary::kNone. Throws BadFile for a
  // usable token so long that the time per character would not be bounded.
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
