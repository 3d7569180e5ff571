// From a chat request to what the engine is asked: the rendered prompt, the grammar the answer must follow, and how to
// take the answer apart.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "grammar/grammar_spec.h"
#include "grammar/triggered.h"
#include "server/chat_request.h"
#include "server/served_model.h"
#include "text/answer/answer_parser.h"

namespace millrace {

struct ChatPrompt {
  std::vector<int32_t> tokens;
  AnswerParserOptions parser;
  std::vector<std::string> visible;  // special tokens that the parser must see
  std::optional<GrammarSpec> grammar;
  std::optional<GrammarTrigger> trigger;  // the grammar holds from here on; none: from the beginning
  bool one_call = false;                  // further ones are left out
  bool forced_call = false;               // the answer is a tool call, whatever the model would like
};

// Throws ApiError where the request contradicts itself or the model cannot do it.
ChatPrompt make_chat_prompt(const ChatRequest& request, const ServedModel& model);

// The engine's request, without the client's name. Throws ApiError.
Request make_chat_engine_request(const ChatRequest& request, const ChatPrompt& prompt, ServedModel& model);

// How many tokens may be generated; 0: as many as fit. Throws context_length_exceeded where prompt and answer do not
// fit.
int32_t answer_room(size_t prompt_tokens, std::optional<int> asked, int32_t context, const char* param);

}  // namespace millrace
