// The C interface: models, tokens, vectors.
#include <algorithm>
#include <cstring>
#include <future>

#include "api/guard.h"
#include "api/handles.h"
#include "api/load.h"
#include "api/prepared.h"
#include "api/versioned.h"
#include "base/build_id.h"
#include "base/log.h"
#include "engine/adapter_name.h"
#include "engine/adapters.h"

namespace millrace {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

millrace_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Usage:
      return MILLRACE_USAGE;
    case ErrorKind::BadFile:
      return MILLRACE_BAD_FILE;
    case ErrorKind::Unsupported:
      return MILLRACE_UNSUPPORTED;
    case ErrorKind::NotFound:
      return MILLRACE_NOT_FOUND;
    case ErrorKind::Io:
      return MILLRACE_IO;
    case ErrorKind::Network:
      return MILLRACE_NETWORK;
    case ErrorKind::OutOfMemory:
      return MILLRACE_OUT_OF_MEMORY;
    case ErrorKind::Cancelled:
      return MILLRACE_CANCELLED;
    case ErrorKind::Busy:
      return MILLRACE_BUSY;
  }
  return MILLRACE_INTERNAL;
}

millrace_status status_of(const ApiProblem& problem) {
  return problem.status < 500 ? MILLRACE_USAGE : problem.status == 503 ? MILLRACE_BUSY : MILLRACE_INTERNAL;
}

namespace {

const ServedModel& served(const millrace_model* model) { return *required(model, "model")->served; }

template <class Element, class Values>
void copy_out(const Values& values, Element* to, size_t room, size_t* count) {
  *required(count, "count") = values.size();
  if (room > 0) std::copy_n(values.begin(), std::min(room, values.size()), required(to, "the output"));
}

int32_t width(const ServedModel& model, millrace_vectors kind) {
  const Model& m = model.runner().model();
  if (kind == MILLRACE_LOGITS) return static_cast<int32_t>(m.config().vocab);
  return static_cast<int32_t>(m.pools() ? m.pooled_width() : m.config().hidden);
}

// Waits for the end of a request that generates nothing.
void run_to_end(const ServedModel& model, Request request, float* embedding) {
  std::promise<std::string> done;
  model.service().submit(std::move(request), [&](const Emission& e) {
    if (embedding != nullptr) std::copy(e.embedding.begin(), e.embedding.end(), embedding);
    if (e.finish == FinishReason::None) return;
    const bool good = e.finish == FinishReason::Length || e.finish == FinishReason::Stop;
    done.set_value(good ? "" : e.error.empty() ? "the computation was cancelled" : std::string(e.error));
  });
  const std::string problem = done.get_future().get();
  if (!problem.empty()) fail(ErrorKind::Io, "{}", problem);
}

void compute(const ServedModel& model, const char* lora, millrace_vectors kind, std::span<const int32_t> tokens,
             float* out) {
  if (kind < MILLRACE_LOGITS || kind > MILLRACE_EMBEDDING)
    fail(ErrorKind::Usage, "unknown kind of vectors: {}", static_cast<int>(kind));
  Request request;
  request.prompt.assign(tokens.begin(), tokens.end());
  request.kind = kind == MILLRACE_LOGITS ? RequestKind::Score : RequestKind::Embed;
  request.adapter = find_lora(model, lora);
  if (kind != MILLRACE_EMBEDDING) {
    request.pooling = kind == MILLRACE_EMBEDDING_LAST ? Pooling::Last : Pooling::Mean;
    request.normalise = true;
  }
  const bool rows = kind == MILLRACE_LOGITS || kind == MILLRACE_HIDDEN_STATES;
  if (rows) {
    const auto columns = static_cast<size_t>(width(model, kind));
    request.on_row = [out, columns](int32_t position, std::span<const float> row) {
      std::memcpy(out + static_cast<size_t>(position) * columns, row.data(), columns * sizeof(float));
    };
  }
  run_to_end(model, std::move(request), rows ? nullptr : out);
}

void load_lora(const ServedModel& model, const char* given, const char* path, bool replace) {
  if (!model.runner().options().adapters)
    fail(ErrorKind::Usage,
         "the model was loaded without room for adapters: load it with lora={{}} in Python, load_loras in C");
  const std::string name = given != nullptr ? given : adapter_name(path);
  if (name.empty()) fail(ErrorKind::Usage, "an adapter needs a name");
  if (!replace && model.service().find_adapter(name) != nullptr)
    fail(ErrorKind::Usage, "an adapter of the name '{}' is loaded already", name);
  model.service().load_adapter(name, path);
}

}  // namespace
}  // namespace millrace

using namespace millrace;

int32_t millrace_api_version() { return MILLRACE_API_VERSION; }
const char* millrace_version() {
  static const std::string text(version());
  return text.c_str();
}
const char* millrace_error() { return last_error().c_str(); }
void millrace_set_verbosity(int32_t verbosity) {
  guarded([&] { set_verbosity(verbosity); });
}

millrace_status millrace_model_load(const char* model, const millrace_model_options* options, millrace_model** out) {
  return guarded([&] {
    *required(out, "out") = nullptr;
    millrace_model_options defaults;
    millrace_model_options_init(&defaults);
    auto loaded = load_for_library(required(model, "model"), known_fields(options, defaults));
    *out = new millrace_model{std::move(loaded)};
  });
}

void millrace_model_free(millrace_model* model) { delete model; }

millrace_status millrace_model_describe(const millrace_model* model, millrace_model_info* info) {
  return guarded([&] {
    const ServedModel& m = served(model);
    const Tokenizer& tokenizer = *m.text().tokenizer;
    give({0, width(m, MILLRACE_LOGITS), width(m, MILLRACE_HIDDEN_STATES), m.context(), m.has_template() ? 1 : 0,
          tokenizer.bos().value_or(-1), tokenizer.eos().value_or(-1)},
         info);
  });
}

millrace_status millrace_tokenize(const millrace_model* model, const char* text, size_t bytes, int32_t add_special,
                                  int32_t* tokens, size_t room, size_t* count) {
  return guarded([&] {
    const std::string_view view(required(text, "text"), bytes);
    copy_out(served(model).text().tokenizer->encode(view, {.add_special = add_special != 0}), tokens, room, count);
  });
}

millrace_status millrace_detokenize(const millrace_model* model, const int32_t* tokens, size_t token_count,
                                    int32_t skip_special, char* text, size_t room, size_t* count) {
  return guarded([&] {
    copy_out(served(model).text().tokenizer->decode({tokens, token_count}, skip_special != 0), text, room, count);
  });
}

millrace_status millrace_render_chat(const millrace_model* model, const char* messages, const char* fields, char* text,
                                     size_t room, size_t* count) {
  return guarded([&] {
    const ServedModel& m = served(model);
    const ChatRequest r = chat_fields().read(chat_body(required(messages, "messages"), fields));
    const auto tokens = make_chat_prompt(r, m).tokens;
    copy_out(m.text().tokenizer->decode(tokens, /*skip_special=*/false), text, room, count);
  });
}

millrace_status millrace_compute(millrace_model* model, millrace_vectors kind, const int32_t* tokens,
                                 size_t token_count, float* out) {
  return guarded([&] { compute(served(model), nullptr, kind, {tokens, token_count}, required(out, "out")); });
}

millrace_status millrace_lora_load(millrace_model* model, const char* name, const char* path, int32_t replace) {
  return guarded([&] { load_lora(served(model), name, required(path, "path"), replace != 0); });
}

millrace_status millrace_lora_unload(millrace_model* model, const char* name) {
  return guarded([&] {
    find_lora(served(model), required(name, "name"));  // throws if there is none
    served(model).service().unload_adapter(name);
  });
}

millrace_status millrace_lora_names(const millrace_model* model, char* names, size_t room, size_t* count) {
  return guarded([&] {
    std::string joined;
    for (const auto& adapter : served(model).service().adapters()) (joined += adapter->name) += '\0';
    copy_out(joined, names, room, count);
  });
}

millrace_status millrace_lora_compute(millrace_model* model, const char* name, millrace_vectors kind,
                                      const int32_t* tokens, size_t token_count, float* out) {
  return guarded([&] {
    compute(served(model), required(name, "name"), kind, {tokens, token_count}, required(out, "out"));
  });
}
