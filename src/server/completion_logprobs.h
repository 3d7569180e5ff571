// The logprobs of /v1/completions: parallel lists over the tokens of a text, prompt included where it is echoed.
#pragma once

#include <vector>

#include "sampling/sampler.h"
#include "server/json.h"
#include "server/schema.h"
#include "text/tokenizer.h"

namespace millrace {

class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // What is shown of a token moves the offsets of those behind it only where the text has it: special tokens are left
  // out of answers, and a prompt is echoed without what the tokenizer put around it.
  enum class InText : bool { No, Yes };
  void add_first(int32_t token, InText in_text);  // with nothing before it: it has no probability
  void add(const TokenLogprobs& logprobs, InText in_text);

  bool empty() const { return tokens_.empty(); }
  double sum() const { return sum_; }
  size_t count() const { return count_; }

  Json take();  // what was added since the last time
  static Schema schema();

 private:
  void add_token(int32_t token, InText in_text);

  const Tokenizer& tokenizer_;
  Json tokens_ = Json::array(), values_ = Json::array(), top_ = Json::array(), offsets_ = Json::array();
  size_t offset_ = 0;  // characters so far
  double sum_ = 0;
  size_t count_ = 0;
};

}  // namespace millrace
