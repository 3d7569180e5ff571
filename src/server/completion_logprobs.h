// The logprobs of /v1/completions: parallel lists over the tokens of a text, including an echoed prompt.
#pragma once

#include <vector>

#include "sampling/sampler.h"
#include "server/requests/json.h"
#include "server/requests/schema.h"
#include "text/tokenizer.h"

namespace millrace {

class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Whether the token's text is part of the answer's text, and so moves the offsets of later tokens. Special tokens in
  // an answer and those the tokenizer adds to a prompt are not.
  enum class InText : bool { No, Yes };
  void add_first(int32_t token, InText in_text);  // the first token has no probability
  void add(const TokenLogprobs& logprobs, InText in_text);

  bool empty() const { return tokens_.empty(); }
  double sum() const { return sum_; }
  size_t count() const { return count_; }

  Json take();  // everything since the last take()
  static Schema schema();

 private:
  void add_token(int32_t token, InText in_text);

  const Tokenizer& tokenizer_;
  Json tokens_ = Json::array(), values_ = Json::array(), top_ = Json::array(), offsets_ = Json::array();
  size_t offset_ = 0;  // in characters
  double sum_ = 0;
  size_t count_ = 0;
};

}  // namespace millrace
