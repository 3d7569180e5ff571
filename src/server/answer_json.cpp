#include "server/answer_json.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <array>
#include <cmath>

namespace millrace {
namespace {

Json one_logprob(const Tokenizer& tokenizer, const TokenLogprob& entry) {
  const std::string bytes = tokenizer.token_bytes(entry.token);
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", token_string(tokenizer, entry.token)},
          {"logprob", sent_logprob(entry.logprob)},
          {"bytes", std::move(numbers)}};
}

Json cascade_json(const CascadeUsage& cascade) {
  return {{"answered_by", cascade.answered_by},
          {"mean_logprob", cascade.mean_logprob ? Json(sent_logprob(*cascade.mean_logprob)) : Json()},
          {"threshold", sent_logprob(cascade.threshold)},
          {"small_prompt_tokens", cascade.small_prompt_tokens},
          {"small_completion_tokens", cascade.small_completion_tokens}};
}

}  // namespace

std::string make_id(std::string_view prefix) {
  // An id gives access to a background response, so that it must not be guessable from earlier ids.
  std::array<unsigned char, 12> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    fail(ErrorKind::Io, "the system has no random bytes for an id");
  }
  return fmt::format("{}{:02x}", prefix, fmt::join(bytes, ""));
}

const char* finish_word(FinishReason finish, bool called_tools) {
  if (finish == FinishReason::Length) return "length";
  return called_tools ? "tool_calls" : "stop";
}

std::string unclosed(const Json& object) {
  std::string text = to_text(object);
  text.pop_back();
  return text;
}

Json usage_json(const Usage& usage) {
  Json ledger{{"queued_ms", usage.queued_ms}, {"compute_ms", usage.compute_ms}};
  if (usage.joules) ledger["joules"] = *usage.joules;
  if (usage.session) ledger["session"] = ledger_json(*usage.session);
  Json json{{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
            {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
            {"completion_tokens_details",
             {{"reasoning_tokens", usage.reasoning_tokens},
              {"accepted_prediction_tokens", usage.accepted_drafts},
              {"rejected_prediction_tokens", usage.rejected_drafts}}},
            {"ledger", std::move(ledger)}};
  add_cascade(json, usage);
  return json;
}

Json response_usage_json(const Usage& usage) {
  Json json{{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
            {"output_tokens", usage.completion_tokens},
            {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  add_cascade(json, usage);
  return json;
}

void add_cascade(Json& usage, const Usage& of) {
  if (of.cascade) usage["cascade"] = cascade_json(*of.cascade);
}

Schema cascade_schema() {
  return Schema::object({{"answered_by", Schema::string(), true},
                         {"mean_logprob", Schema::number().or_null(), true},
                         {"threshold", Schema::number(), true},
                         {"small_prompt_tokens", Schema::integer(0), true},
                         {"small_completion_tokens", Schema::integer(0), true}});
}

Json ledger_json(const SessionLedger& ledger) {
  Json json{{"id", ledger.id},
            {"requests", ledger.requests},
            {"prompt_tokens", ledger.prompt_tokens},
            {"cached_tokens", ledger.cached_tokens},
            {"completion_tokens", ledger.completion_tokens},
            {"queued_ms", ledger.queued_ms},
            {"compute_ms", ledger.compute_ms}};
  if (ledger.joules) json["joules"] = *ledger.joules;
  return json;
}

Schema ledger_schema() {
  const auto count = [] { return Schema::integer(0); };
  return Schema::object({{"id", Schema::string(), true},
                         {"requests", count(), true},
                         {"prompt_tokens", count(), true},
                         {"cached_tokens", count(), true},
                         {"completion_tokens", count(), true},
                         {"queued_ms", Schema::number(0), true},
                         {"compute_ms", Schema::number(0), true},
                         {"joules", Schema::number(0)}});
}

double sent_logprob(double logprob) { return std::isfinite(logprob) ? std::max(logprob, -9999.0) : -9999.0; }

// Special tokens decode to no text; they are shown by name.
std::string token_string(const Tokenizer& tokenizer, int32_t token) {
  return tokenizer.is_special(token) ? std::string(tokenizer.token_text(token)) : tokenizer.token_bytes(token);
}

Json chat_logprob(const Tokenizer& tokenizer, const TokenLogprobs& logprobs) {
  Json json = one_logprob(tokenizer, logprobs.chosen);
  json["top_logprobs"] = Json::array();
  for (const auto& entry : logprobs.top) json["top_logprobs"].push_back(one_logprob(tokenizer, entry));
  return json;
}

Schema usage_schema() {
  return Schema::object(
      {{"prompt_tokens", Schema::integer(0), true},
       {"completion_tokens", Schema::integer(0)},
       {"total_tokens", Schema::integer(0), true},
       {"prompt_tokens_details", Schema::object({{"cached_tokens", Schema::integer(0), true}})},
       {"completion_tokens_details", Schema::object({{"reasoning_tokens", Schema::integer(0), true},
                                                     {"accepted_prediction_tokens", Schema::integer(0), true},
                                                     {"rejected_prediction_tokens", Schema::integer(0), true}})},
       {"ledger", Schema::object({{"queued_ms", Schema::number(0), true},
                                  {"compute_ms", Schema::number(0), true},
                                  {"joules", Schema::number(0)},
                                  {"session", ledger_schema()}})},
       {"cascade", cascade_schema()}});
}

Schema chat_logprobs_schema() {
  const std::vector<Schema::Property> one{{"token", Schema::string(), true},
                                          {"logprob", Schema::number(), true},
                                          {"bytes", Schema::array(Schema::integer(0, 255)).or_null(), true}};
  auto entry = one;
  entry.push_back({"top_logprobs", Schema::array(Schema::object(one)), true});
  return Schema::object(
      {{"content", Schema::array(Schema::object(entry)).or_null(), true}, {"refusal", Schema::null()}});
}

Schema error_schema() {
  return Schema::object({{"error",
                          Schema::object({{"message", Schema::string(), true},
                                          {"type", Schema::string(), true},
                                          {"param", Schema::string().or_null(), true},
                                          {"code", Schema::string().or_null(), true}}),
                          true}});
}

}  // namespace millrace
