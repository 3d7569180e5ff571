// SentencePiece's BPE: two neighbours may merge if their joined text is a token; the token with the best score merges
// first. GGUF files of Llama 2, Mistral and Gemma use it (tokenizer.ggml.model = llama).
#pragma once

#include <memory>
#include <vector>

#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/vocabulary.h"

namespace millrace {

class SentencePieceBpe : public TokenModel {
 public:
  // `mergeable`: by id, false for tokens that text must not produce, such as control tokens. `unknown` stands for
  // characters without a token and without byte tokens; Vocabulary::kNone drops them.
  SentencePieceBpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<float>& scores,
                   std::vector<bool> mergeable, int32_t unknown);

  void encode(std::string_view word, std::vector<int32_t>& ids, TokenModelScratch& scratch) const override;
  void split(std::string_view piece, FunctionRef<void(std::string_view word)> visit) const override {
    splitter_.split(piece, visit);
  }

 private:
  int32_t find(std::string_view text) const;
  void push_bytes(std::string_view text, std::vector<int32_t>& ids) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<uint32_t> ranks_;  // by id: a better score has a lower rank; equal scores have equal ranks
  std::vector<bool> mergeable_;
  int32_t unknown_;
  MetaspaceSplitter splitter_;
};

}  // namespace millrace
