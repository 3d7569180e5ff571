#include "server/completion_logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/answer_json.h"
#include "text/unicode/utf8.h"

namespace millrace {
namespace {

// The names are JSON keys, and every partial character would become the same replacement character. So such a name
// spells out its bytes, as OpenAI's answers do.
std::string name_of(const std::string& text) {
  if (is_valid_utf8(text)) return text;
  std::string name = "bytes:";
  for (const char byte : text) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

}  // namespace

void CompletionLogprobs::add_token(int32_t token, InText in_text) {
  const std::string text = token_string(tokenizer_, token);
  tokens_.push_back(name_of(text));
  offsets_.push_back(offset_);
  if (in_text == InText::No) return;
  offset_ += count_characters(text);
}

void CompletionLogprobs::add_first(int32_t token, InText in_text) {
  add_token(token, in_text);
  values_.push_back(nullptr);
  top_.push_back(nullptr);
}

void CompletionLogprobs::add(const TokenLogprobs& logprobs, InText in_text) {
  add_token(logprobs.chosen.token, in_text);
  values_.push_back(sent_logprob(logprobs.chosen.logprob));
  Json top = Json::object();
  const auto put = [&](const TokenLogprob& entry) {
    const std::string name = name_of(token_string(tokenizer_, entry.token));
    if (!top.contains(name)) top[name] = sent_logprob(entry.logprob);  // of tokens with equal names, keep the likeliest
  };
  for (const auto& entry : logprobs.top) put(entry);
  put(logprobs.chosen);
  top_.push_back(std::move(top));
  sum_ += sent_logprob(logprobs.chosen.logprob);
  ++count_;
}

Json CompletionLogprobs::take() {
  return {{"tokens", std::exchange(tokens_, Json::array())},
          {"token_logprobs", std::exchange(values_, Json::array())},
          {"top_logprobs", std::exchange(top_, Json::array())},
          {"text_offset", std::exchange(offsets_, Json::array())}};
}

Schema CompletionLogprobs::schema() {
  return Schema::object({{"tokens", Schema::array(Schema::string()), true},
                         {"token_logprobs", Schema::array(Schema::number().or_null()), true},
                         {"top_logprobs", Schema::array(Schema::map(Schema::number()).or_null()), true},
                         {"text_offset", Schema::array(Schema::integer(0)), true}});
}

}  // namespace millrace
