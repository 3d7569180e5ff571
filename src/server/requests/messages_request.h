// The body of Anthropic's POST /v1/messages and /v1/messages/count_tokens, and its translation to a chat request.
#pragma once

#include "server/requests/chat_request.h"

namespace millrace {

struct MessagesRequest {
  std::string model, user;
  Json messages = Json::array(), system, stop_sequences, tools = Json::array(), tool_choice, thinking, output_config;
  int max_tokens = 0;
  std::optional<float> temperature, top_p;
  std::optional<int> top_k;
  bool stream = false;
};

const Fields<MessagesRequest>& messages_fields();
const Fields<MessagesRequest>& count_tokens_fields();

// Without a limit on tokens, which depends on the room that the prompt leaves. Throws ApiError.
ChatRequest to_chat_request(const MessagesRequest& request);

}  // namespace millrace
