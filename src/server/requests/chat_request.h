// The body of POST /v1/chat/completions.
#pragma once

#include "server/requests/sampling_request.h"

namespace millrace {

struct ChatRequest : SamplingRequest {
  Json messages = Json::array();
  std::optional<int> max_tokens, max_completion_tokens;
  bool logprobs = false;
  int top_logprobs = 0;
  Json tools = Json::array();
  Json tool_choice;  // null: auto if there are tools
  bool parallel_tool_calls = true;
  Json response_format;          // null: text
  Json structured_outputs;       // vLLM's alternative: {json, regex, choice, grammar}
  std::string reasoning_effort;  // empty: the model's default
  std::optional<int> thinking_budget;
  Json chat_template_kwargs = Json::object();
};

const Fields<ChatRequest>& chat_fields();

// Shared with other requests.
Schema messages_schema();
Schema tools_schema();
Schema tool_choice_schema();
Schema response_format_schema();
Schema structured_outputs_schema();
Schema json_schema_format();  // {name, schema, strict} of a response format

// The text of a message's content: a string, or its text parts joined.
std::string content_text(const Json& content);

// The messages as chat templates expect them: contents are strings, tool call arguments are objects, developer becomes
// system. Throws ApiError for content that the model cannot take.
Json template_messages(const Json& messages);

}  // namespace millrace
