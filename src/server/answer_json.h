// JSON that several endpoints share: token probabilities, usage, finish reasons, ids.
#pragma once

#include <string>

#include "engine/request.h"
#include "server/call.h"
#include "server/requests/json.h"
#include "server/requests/schema.h"
#include "text/tokenizer.h"

namespace millrace {

std::string make_id(std::string_view prefix);  // "chatcmpl-" and 24 random hex digits

const char* finish_word(FinishReason finish, bool called_tools = false);
// The object's text without its closing brace, so that the caller can append members.
std::string unclosed(const Json& object);

Json usage_json(const Usage& usage);
Json response_usage_json(const Usage& usage);  // as /v1/responses has it
Json ledger_json(const SessionLedger& ledger);
void add_cascade(Json& usage, const Usage& of);  // if two models may have answered
double sent_logprob(double logprob);             // JSON has no infinity; -9999 replaces it, as in OpenAI's answers
std::string token_string(const Tokenizer& tokenizer, int32_t token);

// One entry of logprobs.content in a chat answer.
Json chat_logprob(const Tokenizer& tokenizer, const TokenLogprobs& logprobs);

// Their schemas, for the OpenAPI document.
Schema usage_schema();
Schema ledger_schema();
Schema cascade_schema();
Schema chat_logprobs_schema();
Schema error_schema();

}  // namespace millrace
