// Parts that several answers share: token probabilities, usage, finish reasons, ids.
#pragma once

#include <string>

#include "engine/request.h"
#include "server/call.h"
#include "server/json.h"
#include "server/schema.h"
#include "text/tokenizer.h"

namespace millrace {

std::string make_id(std::string_view prefix);  // "chatcmpl-" and 24 random hex digits

const char* finish_word(FinishReason finish, bool called_tools = false);
// The text of an object to which more is added by hand: without its closing brace.
std::string unclosed(const Json& object);

Json usage_json(const Usage& usage);
double sent_logprob(float logprob);  // JSON has no infinity: -9999 stands for it, as in OpenAI's answers
std::string token_string(const Tokenizer& tokenizer, int32_t token);

// One entry of logprobs.content in a chat answer.
Json chat_logprob(const Tokenizer& tokenizer, const TokenLogprobs& logprobs);

// What these look like, for the document.
Schema usage_schema();
Schema chat_logprobs_schema();
Schema error_schema();

}  // namespace millrace
