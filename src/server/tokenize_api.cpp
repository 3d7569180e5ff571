// POST /tokenize and /detokenize, GET /tokenizer_info: lm-evaluation-harness uses them to tokenize as the model does.
#include "server/api.h"
#include "server/chat_prompt.h"
#include "server/requests/tokenize_request.h"

namespace millrace {

void answer_tokenize(const std::shared_ptr<Call>& call, ApiContext& context) {
  const TokenizeRequest r = tokenize_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  if (r.prompt && !r.messages.empty()) fail_field("messages", "invalid_value", "give either 'prompt' or 'messages'");
  if (!r.prompt && r.messages.empty())
    fail_field("prompt", "missing_required_parameter", "give 'prompt' or 'messages'");
  const Tokenizer& tokenizer = *model.text().tokenizer;
  std::vector<int32_t> tokens;
  if (r.prompt) {
    tokens = tokenizer.encode(*r.prompt, {.add_special = r.add_special_tokens});
  } else {
    ChatRequest chat;
    chat.messages = r.messages;
    chat.tools = r.tools;
    chat.chat_template_kwargs = r.chat_template_kwargs;
    chat.opens_answer = r.add_generation_prompt;
    tokens = make_chat_prompt(chat, model).tokens;
  }
  Json json{{"count", tokens.size()}, {"max_model_len", model.context()}, {"tokens", tokens}};
  if (r.return_token_strs) {
    json["token_strs"] = Json::array();
    for (const int32_t token : tokens) json["token_strs"].push_back(std::string(tokenizer.token_text(token)));
  }
  call->reply(json);
}

void answer_detokenize(const std::shared_ptr<Call>& call, ApiContext& context) {
  const DetokenizeRequest r = detokenize_fields().read(call->body());
  ServedModel& model = context.model;
  model.require_ready();
  model.check_name(r.model);
  for (const int32_t token : r.tokens) {
    if (token >= model.vocab()) {
      fail_field("tokens", "invalid_value", "token {} is not in the vocabulary of {}", token, model.vocab());
    }
  }
  call->reply(Json{{"prompt", model.text().tokenizer->decode(r.tokens, /*skip_special=*/false)}});
}

void answer_tokenizer_info(const std::shared_ptr<Call>& call, ApiContext& context) {
  const ServedModel& model = context.model;
  model.require_ready();
  model.check_name(call->asked_model());
  const Tokenizer& tokenizer = *model.text().tokenizer;
  const auto text = [&](std::optional<int32_t> token) {
    return token ? Json(std::string(tokenizer.token_text(*token))) : Json();
  };
  call->reply(Json{{"vocab_size", tokenizer.vocab_size()},
                   {"bos_token", text(tokenizer.bos())},
                   {"eos_token", text(tokenizer.eos())},
                   {"unk_token", text(tokenizer.unknown())},
                   {"pad_token", text(tokenizer.padding())},
                   {"chat_template", model.has_template() ? Json(model.template_source(false)) : Json()}});
}

Schema tokenizer_info_schema() {
  const auto text = Schema::string().or_null();
  return Schema::object({{"vocab_size", Schema::integer(1), true},
                         {"bos_token", text, true},
                         {"eos_token", text, true},
                         {"unk_token", text, true},
                         {"pad_token", text, true},
                         {"chat_template", text, true}});
}

Schema tokenize_answer_schema() {
  return Schema::object({{"count", Schema::integer(0), true},
                         {"max_model_len", Schema::integer(1), true},
                         {"tokens", Schema::array(Schema::integer(0)), true},
                         {"token_strs", Schema::array(Schema::string())}});
}

Schema detokenize_answer_schema() { return Schema::object({{"prompt", Schema::string(), true}}); }

}  // namespace millrace
