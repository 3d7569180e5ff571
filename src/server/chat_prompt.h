// Turns a chat request into a rendered prompt, the grammar of the answer, and the syntax for parsing the answer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "grammar/grammar_spec.h"
#include "grammar/triggered.h"
#include "server/requests/chat_request.h"
#include "server/served_model.h"
#include "text/answer/answer_parser.h"

namespace millrace {

struct ChatPrompt {
  std::vector<int32_t> tokens;
  AnswerParserOptions parser;
  std::vector<std::string> visible;  // special tokens that the answer parser needs
  std::optional<GrammarSpec> grammar;
  std::optional<GrammarSpec> calls;       // the answer follows this or `grammar`: tools beside a response format
  std::optional<GrammarTrigger> trigger;  // where the grammar starts to apply; nullopt: at the beginning
  bool one_call = false;                  // drop further calls
  bool forced_call = false;               // the answer must be a tool call
  // Text that the parser still holds when max_tokens cuts the answer is part of a call, not content.
  bool held_is_call = false;
};

// Throws ApiError if the request contradicts itself or the model does not support it.
ChatPrompt make_chat_prompt(const ChatRequest& request, const ServedModel& model);

// The engine's request, without the client's name. Throws ApiError.
Request make_chat_engine_request(const ChatRequest& request, const ChatPrompt& prompt, ServedModel& model);

// The limit on generated tokens; 0: as many as fit. Throws context_length_exceeded if prompt and answer do not fit.
int32_t answer_room(size_t prompt_tokens, std::optional<int> asked, int32_t context, const char* param);
void check_min_tokens(const Request& request);  // throws ApiError: at most max_tokens

}  // namespace millrace
