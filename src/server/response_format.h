// The grammar that a request asks its answer to follow.
#pragma once

#include <optional>

#include "sampling/grammar/grammar_spec.h"
#include "server/chat_request.h"

namespace millrace {

// None: any text. Throws ApiError where the request asks for two things at once.
std::optional<GrammarSpec> answer_grammar(const Json& response_format, const Json& structured_outputs);

inline std::optional<GrammarSpec> answer_grammar(const ChatRequest& request) {
  return answer_grammar(request.response_format, request.structured_outputs);
}

}  // namespace millrace
