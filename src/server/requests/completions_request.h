// The body of POST /v1/completions.
#pragma once

#include "server/requests/sampling_request.h"

namespace millrace {

struct CompletionsRequest : SamplingRequest {
  Json prompt;
  std::optional<int> max_tokens;
  std::optional<int> logprobs;  // number of alternatives
  bool echo = false;
  std::optional<int> best_of;
  Json response_format, structured_outputs;
  bool add_special_tokens = true;
  std::string suffix;  // the answer is the text between prompt and suffix
};

const Fields<CompletionsRequest>& completions_fields();

// One prompt or several, as text or token ids; used by completions and embeddings.
Schema prompts_schema();
struct PromptInput {
  std::string text;
  std::vector<int32_t> tokens;
  bool is_tokens = false;
};
std::vector<PromptInput> read_prompts(const Json& prompt);

}  // namespace millrace
