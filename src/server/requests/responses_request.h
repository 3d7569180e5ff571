// The body of POST /v1/responses, and its translation to a chat request. Stateless: every request carries its whole
// conversation.
#pragma once

#include "server/requests/api_error.h"
#include "server/requests/chat_request.h"

namespace millrace {

struct ResponsesRequest {
  std::string model, instructions, user;
  Json input;
  std::optional<int> max_output_tokens;
  std::optional<float> temperature, top_p;
  int top_logprobs = 0;
  bool stream = false;
  Json tools = Json::array(), tool_choice, text, reasoning, metadata = Json::object();
  bool parallel_tool_calls = true;
  std::string truncation = "disabled";
  Json include = Json::array();
};

const Fields<ResponsesRequest>& responses_fields();

ChatRequest to_chat_request(const ResponsesRequest& request);
ApiProblem in_responses_names(ApiProblem problem);  // renames fields of a chat problem to this API's names

}  // namespace millrace
