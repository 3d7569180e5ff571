// A request of the library, checked and translated for the engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "millrace/c_api.h"
#include "server/chat_prompt.h"

namespace millrace {

struct PreparedRequest {
  Request request;
  std::vector<std::string> stop;
  std::vector<std::string> visible;           // special tokens that the parser needs
  std::optional<AnswerParserOptions> parser;  // of a chat; nullopt: all text is content
  bool one_call = false;                      // drop further tool calls
};

// Throws ApiError or Error.
PreparedRequest prepare_request(const millrace_request_options& options, ServedModel& model);

// The loaded adapter of this name; null for NULL and "". Throws Usage if there is none.
std::shared_ptr<const Adapter> find_lora(const ServedModel& model, const char* name);

// The body of a chat request: `messages` and `fields` are JSON.
Json chat_body(const char* messages, const char* fields);

}  // namespace millrace
