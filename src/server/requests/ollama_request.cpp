#include "server/requests/ollama_request.h"

namespace millrace {
namespace {

// Settings of Ollama's runner, which here belong to the whole server.
constexpr const char* kRunnerOptions[] = {"num_ctx",  "num_keep", "num_batch", "num_gpu",   "main_gpu",   "num_thread",
                                          "use_mmap", "low_vram", "f16_kv",    "use_mlock", "vocab_only", "numa"};

// Options of samplers that Ollama no longer has, or that only matter beside mirostat. LangChain and others send them.
constexpr const char* kFormerOptions[] = {"mirostat_tau", "mirostat_eta", "penalize_newline"};

Schema options_schema() {
  std::vector<Schema::Property> all{
      {"num_predict", maybe(Schema::integer(-2, kMostTokens).about("below 0: as many as fit"))},
      {"temperature", maybe(Schema::number(0, 2))},
      {"top_k", maybe(Schema::integer(-1, kMostTokens))},
      {"top_p", maybe(Schema::number(0, 1))},
      {"min_p", maybe(Schema::number(0, 1))},
      {"typical_p", maybe(Schema::number(0.01, 1))},
      {"repeat_penalty", maybe(Schema::number(0.01, 10))},
      {"repeat_last_n", maybe(Schema::integer(-1).about("the penalty counts the whole text; 0: no penalty"))},
      {"presence_penalty", maybe(Schema::number(-2, 2))},
      {"frequency_penalty", maybe(Schema::number(-2, 2))},
      {"seed", maybe(Schema::integer())},
      {"stop", maybe(stop_schema())},
      {"mirostat", maybe(Schema::integer(0, 0).about("not supported"))},
      {"tfs_z", maybe(Schema::number(1, 1).about("not supported"))}};
  for (const char* name : kRunnerOptions) all.push_back({name, Schema::any()});
  for (const char* name : kFormerOptions) all.push_back({name, Schema::any()});
  return Schema::object(std::move(all)).about("num_ctx and other settings of the runner are those of the server");
}

template <class T>
void read(const Json& options, const char* name, T& into) {
  const auto found = options.find(name);
  if (found != options.end() && !found->is_null()) into = found->get<typename T::value_type>();
}

void read_options(OllamaRequest& r, const Json& options) {
  read(options, "num_predict", r.num_predict);
  read(options, "temperature", r.temperature);
  read(options, "top_k", r.top_k);
  read(options, "top_p", r.top_p);
  read(options, "min_p", r.min_p);
  read(options, "typical_p", r.typical_p);
  if (options.value("repeat_last_n", Json()) != 0) read(options, "repeat_penalty", r.repetition_penalty);
  read(options, "presence_penalty", r.presence_penalty);
  read(options, "frequency_penalty", r.frequency_penalty);
  read(options, "seed", r.seed);
  r.stop = options.value("stop", Json());
}

Schema no_images() { return Schema::array(Schema::string(), 0, 0).about("not supported: this server takes no images"); }

Schema ollama_messages() {
  const auto function = Schema::object({{"name", Schema::string(1), true},
                                        {"arguments", free_object(), true},
                                        {"index", maybe(Schema::integer(0))},
                                        {"description", maybe(Schema::string())}});
  const auto call = Schema::object(
      {{"function", function, true}, {"id", maybe(Schema::string())}, {"type", maybe(Schema::word({"function"}))}});
  return Schema::array(Schema::object({{"role", Schema::word({"system", "user", "assistant", "tool"}), true},
                                       {"content", maybe(Schema::string())},
                                       {"thinking", maybe(Schema::string())},
                                       {"images", maybe(no_images())},
                                       {"tool_calls", maybe(Schema::array(call))},
                                       {"tool_name", maybe(Schema::string())},
                                       {"tool_call_id", maybe(Schema::string())},
                                       {"name", maybe(Schema::string())}}))
      .example(Json::array({{{"role", "user"}, {"content", "Say hello."}}}));
}

std::vector<Field<OllamaRequest>> common_fields() {
  using R = OllamaRequest;
  return {
      field<R>("model", Schema::string(), &R::model),
      field<R>("stream", Schema::boolean().unless_given(true), &R::stream),
      field<R>("format", Schema::any_of({Schema::word({"json", ""}), free_object().about("a JSON Schema")}),
               &R::format),
      {"options", options_schema(), read_options},
      field<R>("think", Schema::any_of({Schema::boolean(), Schema::word({"low", "medium", "high"})}), &R::think),
      ignored_field<R>("keep_alive", Schema::any().about("the model stays loaded")),
      field<R>("logprobs", Schema::boolean(), &R::logprobs),
      field<R>("top_logprobs", Schema::integer(0, kMostLogprobs), &R::top_logprobs),
  };
}

// Calls of earlier answers have no ids, and results name the tool: they belong together in order.
Json history_of(const Json& messages) {
  Json result = Json::array();
  std::vector<std::string> open;  // ids of calls without a result
  size_t number = 0;
  for (const Json& message : messages) {
    const auto text = [&](const char* name) {
      const Json said = message.value(name, Json());
      return said.is_string() ? said.get<std::string>() : "";
    };
    Json made{{"role", message["role"]}, {"content", text("content")}};
    if (!text("thinking").empty()) made["reasoning_content"] = text("thinking");
    const Json calls = message.value("tool_calls", Json());
    if (calls.is_array() && !calls.empty()) {
      open.clear();
      for (const Json& call : calls) {
        open.push_back("call_" + std::to_string(number++));
        const Json& function = call["function"];
        made["tool_calls"].push_back(
            {{"id", open.back()},
             {"type", "function"},
             {"function", {{"name", function["name"]}, {"arguments", to_text(function["arguments"])}}}});
      }
    }
    if (message["role"] == "tool") {
      made["tool_call_id"] = open.empty() ? "call" : open.front();
      if (!open.empty()) open.erase(open.begin());
      const std::string name = text("tool_name").empty() ? text("name") : text("tool_name");
      if (!name.empty()) made["name"] = name;
    }
    result.push_back(std::move(made));
  }
  return result;
}

}  // namespace

const Fields<OllamaRequest>& ollama_chat_fields() {
  using R = OllamaRequest;
  static const Fields<R> fields{
      common_fields(),
      {field<R>("messages", ollama_messages(), &R::messages), field<R>("tools", tools_schema(), &R::tools)}};
  return fields;
}

const Fields<OllamaRequest>& ollama_generate_fields() {
  using R = OllamaRequest;
  static const Fields<R> fields{
      common_fields(),
      {field<R>("prompt", Schema::string().example("Why is the sky blue?"), &R::prompt),
       field<R>("suffix", Schema::string().about("the text behind the answer, for models that can fill in"),
                &R::suffix),
       field<R>("system", Schema::string(), &R::system),
       field<R>("raw", Schema::boolean().about("the prompt goes to the model as it is"), &R::raw),
       ignored_field<R>("images", no_images()),
       ignored_field<R>("template", Schema::string(0, 0).about("not supported: the model's own template is used")),
       ignored_field<R>("context",
                        Schema::array(Schema::any(), 0, 0).about("not supported: /api/chat takes a history"))}};
  return fields;
}

const Fields<OllamaEmbedRequest>& ollama_embed_fields() {
  using R = OllamaEmbedRequest;
  const auto texts = Schema::any_of({Schema::string(), Schema::array(Schema::string(), 0, 2048)});
  static const Fields<R> fields{
      {field<R>("input", texts.example("A text"), &R::input), field<R>("model", Schema::string(), &R::model),
       field<R>("dimensions", Schema::integer(1, 1 << 20).about("an embedding model's vectors are cut to this length"),
                &R::dimensions),
       field<R>("truncate", Schema::boolean().unless_given(true).about("cut a text that is too long; false: refuse it"),
                &R::truncate),
       ignored_field<R>("options", free_object()), ignored_field<R>("keep_alive", Schema::any())}};
  return fields;
}

const Fields<OllamaEmbedRequest>& ollama_embeddings_fields() {
  using R = OllamaEmbedRequest;
  static const Fields<R> fields{{field<R>("prompt", Schema::string().example("A text"), &R::input),
                                 field<R>("model", Schema::string(), &R::model),
                                 ignored_field<R>("options", free_object()),
                                 ignored_field<R>("keep_alive", Schema::any())}};
  return fields;
}

const Fields<OllamaNameRequest>& ollama_show_fields() {
  using R = OllamaNameRequest;
  static const Fields<R> fields{{field<R>("name", Schema::string(), &R::model),
                                 field<R>("model", Schema::string(), &R::model),
                                 ignored_field<R>("verbose", Schema::boolean())}};
  return fields;
}

const Fields<OllamaNameRequest>& ollama_pull_fields() {
  using R = OllamaNameRequest;
  static const Fields<R> fields{{field<R>("name", Schema::string(), &R::model),
                                 field<R>("model", Schema::string().about("a name of `millrace models`"), &R::model),
                                 field<R>("stream", Schema::boolean().unless_given(true), &R::stream),
                                 ignored_field<R>("insecure", Schema::boolean())}};
  return fields;
}

ChatRequest to_chat_request(const OllamaRequest& r) {
  ChatRequest chat;
  static_cast<SamplingRequest&>(chat) = r;
  if (r.num_predict && *r.num_predict > 0) chat.max_tokens = *r.num_predict;
  chat.logprobs = r.logprobs;
  chat.top_logprobs = r.logprobs ? r.top_logprobs : 0;
  chat.tools = r.tools;
  if (r.format == "json") chat.response_format = {{"type", "json_object"}};
  if (r.format.is_object() && !r.format.empty()) {
    chat.response_format = {{"type", "json_schema"}, {"json_schema", {{"name", "answer"}, {"schema", r.format}}}};
  }
  if (r.think == false) chat.reasoning_effort = "none";
  if (r.think.is_string()) chat.reasoning_effort = r.think;
  chat.messages = history_of(r.messages);
  if (!r.prompt.empty()) {
    if (!r.system.empty()) chat.messages.push_back({{"role", "system"}, {"content", r.system}});
    chat.messages.push_back({{"role", "user"}, {"content", r.prompt}});
  }
  if (chat.messages.empty()) return chat;
  const Json& last = chat.messages.back();
  chat.continue_final_message =
      last["role"] == "assistant" && !last.contains("tool_calls") && !content_text(last["content"]).empty();
  return chat;
}

}  // namespace millrace
