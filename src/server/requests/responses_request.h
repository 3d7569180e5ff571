// The body of POST /v1/responses, and its translation to a chat request.
#pragma once

#include "server/requests/api_error.h"
#include "server/requests/chat_request.h"

namespace millrace {

constexpr const char* kIncludeLogprobs = "message.output_text.logprobs";
constexpr const char* kIncludeReasoning = "reasoning.encrypted_content";

struct ResponsesRequest {
  std::string model, instructions, user;
  Json input;  // with previous_response_id: behind the items of that response
  std::string previous_response_id;
  bool store = true;  // the response can be read and continued later
  std::optional<int> max_output_tokens;
  std::optional<float> temperature, top_p;
  int top_logprobs = 0;
  std::optional<int> top_k;
  std::optional<float> min_p;
  std::optional<int64_t> seed;
  bool stream = false;
  bool background = false;  // goes on without a client; its events are kept for clients that return
  Json tools = Json::array(), tool_choice, text, reasoning, metadata = Json::object();
  bool parallel_tool_calls = true;
  std::string truncation = "disabled";
  Json include = Json::array();
  bool obfuscate = false;  // pads deltas, so that their sizes do not show the text's lengths

  bool includes(const char* what) const;
  bool summarises() const;  // reasoning is wanted as a summary
};

const Fields<ResponsesRequest>& responses_fields();

ChatRequest to_chat_request(const ResponsesRequest& request);
ApiProblem in_responses_names(ApiProblem problem);  // renames fields of a chat problem to this API's names

}  // namespace millrace
