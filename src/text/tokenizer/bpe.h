// Byte pair encoding with a list of merges, as in tokenizer.json: byte-level (GPT-2 and most later models) or with byte
// fallback (converted SentencePiece models).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/vocabulary.h"

namespace millrace {

struct BpeOptions {
  std::string unknown_token;  // empty: unknown characters are dropped
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unknown = false;   // adjacent unknown characters become one token
  bool byte_fallback = false;  // unknown characters become byte tokens
  bool ignore_merges = false;  // a word that equals a token becomes that token without merging
};

class Bpe : public TokenModel {
 public:
  Bpe(std::shared_ptr<const Vocabulary> vocabulary, PairMap merges, BpeOptions options);

  void encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const override;
  void split(std::string_view piece, FunctionRef<void(std::string_view word)> visit) const override;

 private:
  int32_t character_id(std::string_view character, bool first, bool last) const;
  bool push_bytes(std::string_view character, bool first, bool last, uint32_t at, TokenModelScratch& scratch) const;
  void push_characters(std::string_view word, TokenModelScratch& scratch) const;
  bool decorated() const { return !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty(); }
  std::string decorate(std::string_view character, bool first, bool last) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  PairMap merges_;
  BpeOptions options_;
  int32_t unknown_;
  std::array<int32_t, 512> low_ids_;  // ids of characters below U+0200, which cover byte-level words
  std::optional<MetaspaceSplitter> splitter_;
};

}  // namespace millrace
