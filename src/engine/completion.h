// Runs one request and streams its text. Generated tokens pass through the detokenizer and the stop strings, and reach
// the caller as pieces of valid UTF-8.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace millrace {

struct CompletionOptions {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int32_t max_tokens = 0;
  std::vector<int32_t> end_tokens;
  std::vector<std::string> stop;           // stop strings; the text ends before the first match
  std::vector<std::string> visible;        // special tokens that stay in the text, for an AnswerParser
  std::shared_ptr<Constraint> constraint;  // null: free text
};

struct Completion {
  std::string text;
  std::vector<int32_t> tokens;  // generated, including the end token
  std::vector<TokenLogprobs> logprobs;
  FinishReason finish = FinishReason::None;
  bool interrupted = false;  // by Ctrl-C
  int32_t prompt_tokens = 0, cached_tokens = 0;
  int32_t accepted_drafts = 0, rejected_drafts = 0;  // draft tokens
  double ttft_ms = 0;
  double tokens_per_second = 0;  // after the first token
};

// Without tokenizer the result has tokens only.
Completion complete(Engine& engine, const Tokenizer* tokenizer, const CompletionOptions& options,
                    FunctionRef<void(std::string_view piece)> on_text);

}  // namespace millrace
