// WordPiece (BERT) takes the longest matching token repeatedly. WordLevel knows whole words only.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/vocabulary.h"

namespace millrace {

class WordPiece : public TokenModel {
 public:
  // Words of more than `longest_word` characters become the unknown token. Throws BadFile for overlong tokens.
  WordPiece(std::shared_ptr<const Vocabulary> vocabulary, std::string unknown_token,
            const std::string& continuing_prefix, size_t longest_word);

  void encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const override;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::string unknown_token_;
  size_t longest_word_;
  ByteTrie beginnings_, continuations_;  // tokens that begin a word, and continuing tokens without their prefix
};

class WordLevel : public TokenModel {
 public:
  WordLevel(std::shared_ptr<const Vocabulary> vocabulary, std::string unknown_token)
      : vocabulary_(std::move(vocabulary)), unknown_token_(std::move(unknown_token)) {}

  void encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const override;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::string unknown_token_;
};

}  // namespace millrace
