// The grammar that a request asks its answer to follow.
#pragma once

#include <memory>
#include <optional>

#include "grammar/grammar_compiler.h"
#include "server/chat_request.h"

namespace millrace {

// None: any text. Throws ApiError where the request asks for two things at once.
std::optional<GrammarSpec> answer_grammar(const Json& response_format, const Json& structured_outputs);

// Compiles it; what is wrong with it is an ApiError that names the field it came from.
std::unique_ptr<Constraint> compile_answer(GrammarCompiler& grammars, const GrammarSpec& grammar,
                                           const std::optional<GrammarTrigger>& trigger, const Json& response_format);

// Throws ApiError where a request for a form also says when the answer may end.
void check_end_beside_form(const SamplingRequest& request);

inline std::optional<GrammarSpec> answer_grammar(const ChatRequest& request) {
  return answer_grammar(request.response_format, request.structured_outputs);
}

}  // namespace millrace
