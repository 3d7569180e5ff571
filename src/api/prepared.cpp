#include "api/prepared.h"

#include <cmath>

#include "base/error.h"
#include "server/requests/completions_request.h"
#include "server/response_format.h"

namespace millrace {
namespace {

Json read_fields(const char* text) {
  Json fields = text == nullptr ? Json::object() : parse_json(text);
  if (!fields.is_object()) fail(ErrorKind::Usage, "fields must be a JSON object");
  return fields;
}

// `fields` come first: the typed options fill in what they leave out.
void add_typed(const millrace_request_options& o, Json& body) {
  const auto add = [&](const char* name, const auto& value) {
    if (!body.contains(name)) body[name] = value;
  };
  if (o.max_tokens < 0) fail(ErrorKind::Usage, "max_tokens {}: a negative number cannot be generated", o.max_tokens);
  if (o.max_tokens > 0 && !body.contains("max_completion_tokens")) add("max_tokens", o.max_tokens);
  if (o.top_k != INT32_MIN) add("top_k", o.top_k);
  // Rounded, so that a message about 0.1f shows 0.1.
  if (!std::isnan(o.temperature)) add("temperature", std::round(double(o.temperature) * 1e6) / 1e6);
  if (!std::isnan(o.top_p)) add("top_p", std::round(double(o.top_p) * 1e6) / 1e6);
  if (o.seed >= 0) add("seed", o.seed);
}

PreparedRequest prepare_chat(const millrace_request_options& o, ServedModel& model) {
  Json body = chat_body(o.messages, o.fields);
  add_typed(o, body);
  const ChatRequest r = chat_fields().read(body);
  ChatPrompt prompt = make_chat_prompt(r, model);
  PreparedRequest prepared{.request = make_chat_engine_request(r, prompt, model), .stop = stop_strings(r)};
  prepared.visible = std::move(prompt.visible);
  prepared.parser = std::move(prompt.parser);
  prepared.one_call = prompt.one_call;
  return prepared;
}

PreparedRequest prepare_text(const millrace_request_options& o, ServedModel& model) {
  Json body = read_fields(o.fields);
  for (const char* name : {"prompt", "echo", "best_of"}) {
    if (body.contains(name)) fail(ErrorKind::Usage, "fields: '{}' has no meaning here", name);
  }
  add_typed(o, body);
  body["prompt"] = "";  // of the options, below
  const CompletionsRequest r = completions_fields().read(body);
  PreparedRequest prepared{.request = {}, .stop = stop_strings(r)};
  Request& request = prepared.request;
  request.prompt = o.tokens != nullptr
                       ? std::vector<int32_t>(o.tokens, o.tokens + o.token_count)
                       : model.text().tokenizer->encode(o.prompt, {.add_special = r.add_special_tokens});
  request.sampling = to_sampling(r, model.text().sampling, model.vocab());
  request.sampling.logprobs = r.logprobs.value_or(-1);
  request.max_tokens = answer_room(request.prompt.size(), r.max_tokens, model.context(), "prompt");
  request.choices = r.n;
  request.priority = r.priority;
  request.min_tokens = r.min_tokens;
  if (!r.ignore_eos) request.end_tokens = model.text().end_tokens;
  const auto grammar = answer_grammar(r.response_format, r.structured_outputs);
  if (grammar) check_end_beside_form(r);
  for (int i = 0; grammar && i < r.n; ++i)
    request.constraints.push_back(compile_answer(model.grammars(), *grammar, std::nullopt, r.response_format));
  return prepared;
}

}  // namespace

Json chat_body(const char* messages, const char* fields) {
  Json body = read_fields(fields);
  body["messages"] = parse_json(messages);
  return body;
}

PreparedRequest prepare_request(const millrace_request_options& o, ServedModel& model) {
  if ((o.prompt != nullptr) + (o.tokens != nullptr) + (o.messages != nullptr) != 1)
    fail(ErrorKind::Usage, "give one of prompt, tokens and messages");
  const auto adapter = find_lora(model, o.lora);
  PreparedRequest prepared = o.messages != nullptr ? prepare_chat(o, model) : prepare_text(o, model);
  prepared.request.adapter = adapter;
  return prepared;
}

std::shared_ptr<const Adapter> find_lora(const ServedModel& model, const char* name) {
  if (name == nullptr || *name == 0) return nullptr;
  auto found = model.service().find_adapter(name);
  if (!found) fail(ErrorKind::Usage, "lora '{}': no adapter of this name is loaded", name);
  return found;
}

}  // namespace millrace
