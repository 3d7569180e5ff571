// The grammar that a request requires of its answer.
#pragma once

#include <memory>
#include <optional>

#include "grammar/grammar_compiler.h"
#include "server/requests/chat_request.h"

namespace millrace {

// Nullopt: any text. Throws ApiError if the request asks for two formats at once.
std::optional<GrammarSpec> answer_grammar(const Json& response_format, const Json& structured_outputs);

// Compiles it. Errors are an ApiError that names the field.
std::unique_ptr<Constraint> compile_answer(GrammarCompiler& grammars, const GrammarSpec& grammar,
                                           const std::optional<GrammarTrigger>& trigger, const Json& response_format);

// Throws ApiError if a request with a grammar sets ignore_eos or min_tokens: the grammar alone ends the answer.
void check_end_beside_form(const SamplingRequest& request);

inline std::optional<GrammarSpec> answer_grammar(const ChatRequest& request) {
  return answer_grammar(request.response_format, request.structured_outputs);
}

}  // namespace millrace
