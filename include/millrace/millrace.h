// millrace from C++: load a model, generate text, run many requests at once. A header over the C interface (c_api.h),
// so that program and library may come from different compilers. Link with -lmillrace, or millrace::millrace from
// CMake. Every failure is a millrace::Failure, a std::runtime_error with one line of text that names the problem and
// the remedy.
#pragma once

#include <millrace/c_api.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

class Failure : public std::runtime_error {
 public:
  explicit Failure(millrace_status status) : std::runtime_error(millrace_error()), status_(status) {}
  millrace_status status() const { return status_; }

 private:
  millrace_status status_;
};

inline millrace_status check(millrace_status status) {
  if (status < 0) throw Failure(status);
  return status;
}

struct Lora {        // a low-rank adapter
  std::string path;  // a PEFT folder or a GGUF file
  std::string name;  // by which requests choose it; empty: that of the file or folder
};

struct ModelSettings {
  // "cpu", "cuda" (the first GPU), "cuda:N", or "auto": the first GPU if this build can use it, else the CPU
  std::string device = "auto";
  int threads = 0;            // 0: one per usable core
  int64_t context = 0;        // 0: the model's, or what memory allows
  bool exact = false;         // f32 activations, KV cache and arithmetic
  std::string kv_type;        // "f32", "f16", "bf16", "q8_0", "fp8"; empty: f16, on a GPU the working type
  int sequences = 32;         // run at the same time, at most
  int64_t kv_tokens = 32768;  // positions of the KV cache for all sequences together, at least one context
  bool prefix_cache = true;   // keep prompts and answers for later requests with the same beginning
  bool batch_invariant = false;
  std::string chat_template;     // Jinja; empty: the model's
  std::string draft = "lookup";  // see c_api.h; the text stays the same
  std::vector<Lora> loras;       // loaded with the model
  bool load_loras = false;       // more may follow by load_lora()
  // Called while the model is fetched (total 0) and loaded. False stops.
  std::function<bool(int64_t done_bytes, int64_t total_bytes)> progress;
};

struct GenerateSettings {  // unset fields take the model's own defaults
  int max_tokens = 0;      // 0: until the model ends the answer or the context is full
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  bool chat = true;  // wrap the prompt in the model's chat template, if it has one
  std::string lora;  // name of a low-rank adapter; empty: none
};

struct Generated {
  std::string text;
  std::vector<int32_t> tokens;
  bool out_of_room = false;  // ended by max_tokens or a full context
  int prompt_tokens = 0;
};

// Writes JSON for the `fields` of a request.
inline std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    constexpr const char* kHex = "0123456789abcdef";
    if (c == '"' || c == '\\') {
      (json += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      ((json += "\\u00") += kHex[c >> 4]) += kHex[c & 15];
    } else {
      json += c;
    }
  }
  return json += '"';
}

// A running request. Destruction cancels it.
class Stream {
 public:
  explicit Stream(millrace_request* request) : request_(request) {}

  // The next part of any choice; its pointers are valid until the next call. Nullopt: the request has ended.
  std::optional<millrace_delta> next() {
    millrace_delta delta{};
    delta.size = sizeof delta;
    return check(millrace_next(request_.get(), -1, &delta)) == MILLRACE_END ? std::nullopt : std::optional(delta);
  }
  // MILLRACE_OK, MILLRACE_END or MILLRACE_TIMEOUT.
  millrace_status next(int timeout_ms, millrace_delta& delta) {
    delta.size = sizeof delta;
    return check(millrace_next(request_.get(), timeout_ms, &delta));
  }
  void cancel() { millrace_cancel(request_.get()); }  // from any thread
  millrace_usage usage() const {
    millrace_usage usage{};
    usage.size = sizeof usage;
    check(millrace_request_usage(request_.get(), &usage));
    return usage;
  }

 private:
  struct Free {
    void operator()(millrace_request* request) const { millrace_request_free(request); }
  };
  std::unique_ptr<millrace_request, Free> request_;
};

namespace detail {

inline std::vector<millrace_lora> c_loras(const ModelSettings& s) {
  std::vector<millrace_lora> loras;
  for (const Lora& lora : s.loras)
    loras.push_back({lora.name.empty() ? nullptr : lora.name.c_str(), lora.path.c_str()});
  return loras;
}

// The options point into `settings` and `loras`, which must outlive them.
inline millrace_model_options c_options(const ModelSettings& s, const std::vector<millrace_lora>& loras) {
  millrace_model_options o;
  millrace_model_options_init(&o);
  o.device = s.device.c_str();
  o.kv_type = s.kv_type.empty() ? nullptr : s.kv_type.c_str();
  o.chat_template = s.chat_template.empty() ? nullptr : s.chat_template.c_str();
  o.threads = s.threads;
  o.exact = s.exact ? 1 : 0;
  o.context = s.context;
  o.sequences = s.sequences;
  o.kv_tokens = s.kv_tokens;
  o.no_prefix_cache = s.prefix_cache ? 0 : 1;
  o.batch_invariant = s.batch_invariant ? 1 : 0;
  o.draft = s.draft.empty() ? nullptr : s.draft.c_str();
  o.loras = loras.data();
  o.lora_count = loras.size();
  o.load_loras = s.load_loras ? 1 : 0;
  if (!s.progress) return o;
  o.progress = [](void* user, int64_t done, int64_t total) noexcept -> int32_t {
    try {
      return static_cast<const ModelSettings*>(user)->progress(done, total) ? 0 : 1;
    } catch (...) {
      return 1;
    }
  };
  o.progress_user = const_cast<ModelSettings*>(&s);
  return o;
}

inline std::string c_fields(const GenerateSettings& s) {
  std::string fields = "{";
  const auto add = [&](const char* name, const std::string& value) {
    if (fields.size() > 1) fields += ',';
    ((fields += json_string(name)) += ':') += value;
  };
  if (s.min_p) add("min_p", std::to_string(*s.min_p));
  if (s.repetition_penalty) add("repetition_penalty", std::to_string(*s.repetition_penalty));
  if (!s.stop.empty()) {
    std::string list;
    for (const std::string& stop : s.stop) (list += list.empty() ? '[' : ',') += json_string(stop);
    add("stop", list + ']');
  }
  return fields + '}';
}

// Calls a function that fills at most `room` elements and tells how many there are, a second time if need be.
template <class Container, class Call>
Container sized(size_t guess, Call call) {
  Container result(guess, {});
  size_t count = 0;
  check(call(result.data(), result.size(), &count));
  const bool again = count > result.size();
  result.resize(count);
  if (again) check(call(result.data(), result.size(), &count));
  return result;
}

}  // namespace detail

class LanguageModel {
 public:
  // A .gguf file, a Hugging Face folder, or a name from `millrace models`, which is downloaded once.
  explicit LanguageModel(const std::string& model, const ModelSettings& settings = {}) {
    const std::vector<millrace_lora> loras = detail::c_loras(settings);
    const millrace_model_options options = detail::c_options(settings, loras);
    millrace_model* loaded = nullptr;
    check(millrace_model_load(model.c_str(), &options, &loaded));
    model_.reset(loaded);
  }

  millrace_model_info info() const {
    millrace_model_info info{};
    info.size = sizeof info;
    check(millrace_model_describe(model_.get(), &info));
    return info;
  }

  // Runs beside all other requests. Initialise the options with millrace_request_options_init().
  Stream submit(const millrace_request_options& options) {
    millrace_request* request = nullptr;
    check(millrace_submit(model_.get(), &options, &request));
    return Stream(request);
  }

  // `on_text` receives the answer in pieces of whole characters. Several threads may call at once.
  Generated generate(const std::string& prompt, const GenerateSettings& settings = {},
                     const std::function<void(std::string_view)>& on_text = {}) {
    const std::string fields = detail::c_fields(settings);
    const std::string messages = "[{\"role\":\"user\",\"content\":" + json_string(prompt) + "}]";
    millrace_request_options o;
    millrace_request_options_init(&o);
    const bool chat = settings.chat && info().has_chat_template != 0;
    (chat ? o.messages : o.prompt) = chat ? messages.c_str() : prompt.c_str();
    o.max_tokens = settings.max_tokens;
    if (settings.temperature) o.temperature = *settings.temperature;
    if (settings.top_p) o.top_p = *settings.top_p;
    if (settings.top_k) o.top_k = *settings.top_k;
    o.seed = static_cast<int64_t>(settings.seed & INT64_MAX);
    o.fields = fields.c_str();
    o.whole = on_text ? 0 : 1;
    o.lora = settings.lora.c_str();
    Stream stream = submit(o);
    Generated result;
    while (const auto delta = stream.next()) {
      const std::string_view text(delta->text, delta->text_bytes);
      result.text += text;
      result.tokens.insert(result.tokens.end(), delta->tokens, delta->tokens + delta->token_count);
      result.out_of_room = delta->finish == MILLRACE_LENGTH;
      if (on_text && !text.empty()) on_text(text);
    }
    result.prompt_tokens = stream.usage().prompt_tokens;
    return result;
  }

  std::vector<int32_t> tokenize(const std::string& text, bool add_special = true) const {
    return detail::sized<std::vector<int32_t>>(text.size() + 8, [&](int32_t* to, size_t room, size_t* count) {
      return millrace_tokenize(model_.get(), text.data(), text.size(), add_special ? 1 : 0, to, room, count);
    });
  }
  std::string detokenize(const std::vector<int32_t>& tokens, bool skip_special = true) const {
    return detail::sized<std::string>(8 * tokens.size() + 8, [&](char* to, size_t room, size_t* count) {
      return millrace_detokenize(model_.get(), tokens.data(), tokens.size(), skip_special ? 1 : 0, to, room, count);
    });
  }
  // `messages` and `fields` are JSON, as in millrace_request_options.
  std::string render_chat(const std::string& messages, const std::string& fields = "{}") const {
    return detail::sized<std::string>(4 * messages.size() + 256, [&](char* to, size_t room, size_t* count) {
      return millrace_render_chat(model_.get(), messages.c_str(), fields.c_str(), to, room, count);
    });
  }

  // Adapters come and go between steps; see c_api.h.
  void load_lora(const Lora& lora, bool replace = false) {
    check(millrace_lora_load(model_.get(), lora.name.empty() ? nullptr : lora.name.c_str(), lora.path.c_str(),
                             replace ? 1 : 0));
  }
  void unload_lora(const std::string& name) { check(millrace_lora_unload(model_.get(), name.c_str())); }
  std::vector<std::string> loras() const {
    const auto joined = detail::sized<std::string>(
        256, [&](char* to, size_t room, size_t* count) { return millrace_lora_names(model_.get(), to, room, count); });
    std::vector<std::string> names;
    for (size_t at = 0; at < joined.size(); at += names.back().size() + 1) names.emplace_back(joined.c_str() + at);
    return names;
  }

  // Row by row: logits and hidden states have one row per token, embeddings one. `lora`: name of an adapter.
  std::vector<float> compute(millrace_vectors kind, const std::vector<int32_t>& tokens, const std::string& lora = {}) {
    const bool rows = kind == MILLRACE_LOGITS || kind == MILLRACE_HIDDEN_STATES;
    const auto width = static_cast<size_t>(kind == MILLRACE_LOGITS ? info().vocabulary : info().hidden);
    std::vector<float> values(width * (rows ? tokens.size() : 1) + 1);
    check(lora.empty()
              ? millrace_compute(model_.get(), kind, tokens.data(), tokens.size(), values.data())
              : millrace_lora_compute(model_.get(), lora.c_str(), kind, tokens.data(), tokens.size(), values.data()));
    values.pop_back();
    return values;
  }

 private:
  struct Free {
    void operator()(millrace_model* model) const { millrace_model_free(model); }
  };
  std::unique_ptr<millrace_model, Free> model_;
};

// The server of `millrace serve` in this process. Destruction lets running requests finish for 30 seconds.
class Server {
 public:
  Server(const std::string& model, const ModelSettings& settings, const millrace_server_options& options) {
    const std::vector<millrace_lora> loras = detail::c_loras(settings);
    const millrace_model_options model_options = detail::c_options(settings, loras);
    millrace_server* started = nullptr;
    check(millrace_server_start(model.c_str(), &model_options, &options, &started));
    server_.reset(started);
  }
  int port() const { return millrace_server_port(server_.get()); }
  void stop(int drain_ms) { millrace_server_stop(server_.release(), drain_ms); }

 private:
  struct Stop {
    void operator()(millrace_server* server) const { millrace_server_stop(server, 30000); }
  };
  std::unique_ptr<millrace_server, Stop> server_;
};

}  // namespace millrace
