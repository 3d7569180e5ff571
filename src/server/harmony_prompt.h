// Chat requests for models that answer in the harmony format (gpt-oss): what their template expects, and constraints
// that follow the channels of an answer.
#pragma once

#include <memory>

#include "server/chat_prompt.h"

namespace millrace {

// Adapts the template's variables `messages`, `tools` and `reasoning_effort`.
void adapt_to_harmony(const ChatRequest& request, Json& context);

// What the prompt opens of the answer: without reasoning and tools, the answer begins in the final channel.
std::string_view harmony_opening(const ChatRequest& request, const ChatPrompt& prompt);

// Null: the answer is free. Throws ApiError.
std::unique_ptr<Constraint> harmony_constraint(const ChatRequest& request, const ChatPrompt& prompt,
                                               ServedModel& model);

// An answer of one form, in the final channel; without `form` it is free. `opened`: as AnswerParserOptions::opened.
// `budget`: tokens of the analysis channel; -1: no limit, 0: there is no such channel.
std::unique_ptr<Constraint> harmony_form(const TextModel& text, const std::string& opened, int32_t budget,
                                         std::unique_ptr<Constraint> form);

}  // namespace millrace
