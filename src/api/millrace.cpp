#include "millrace/millrace.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/completion.h"
#include "engine/runner.h"
#include "engine/text_model.h"
#include "store/store.h"

namespace millrace {

struct LanguageModel::Loaded {
  std::shared_ptr<const WeightSource> source;
  TextModel text;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<Engine> engine;
};

namespace {

// Error is internal: the public header promises std::runtime_error.
template <class Work>
auto guarded(Work work) {
  try {
    return work();
  } catch (const Error& e) {
    throw std::runtime_error(e.what());
  }
}

LoadOptions load_options(const ModelSettings& s) {
  LoadOptions options{.threads = s.threads, .exact = s.exact, .context = s.context};
  const auto device = parse_device(s.device);
  if (!device) fail(ErrorKind::Usage, "device '{}': one of cpu, cuda, cuda:N, auto", s.device);
  options.device = *device;
  if (s.kv_type.empty()) return options;
  options.kv_type = kv_dtype_from_name(s.kv_type);
  if (!options.kv_type) fail(ErrorKind::Usage, "kv_type '{}': one of {}", s.kv_type, kKvDtypeNames);
  return options;
}

std::vector<int32_t> prompt_tokens(const TextModel& text, const std::string& prompt, bool chat) {
  if (!chat || !text.chat) return text.tokenizer->encode(prompt);
  const nlohmann::ordered_json message{{"role", "user"}, {"content", prompt}};
  return encode_chat(*text.tokenizer, render_chat(text, {{"messages", {message}}, {"add_generation_prompt", true}}));
}

CompletionOptions completion_options(const TextModel& text, const std::string& prompt, const GenerateSettings& s) {
  CompletionOptions o;
  o.prompt = prompt_tokens(text, prompt, s.chat);
  o.sampling = text.sampling;
  o.sampling.temperature = s.temperature.value_or(o.sampling.temperature);
  o.sampling.top_p = s.top_p.value_or(o.sampling.top_p);
  o.sampling.min_p = s.min_p.value_or(o.sampling.min_p);
  o.sampling.top_k = s.top_k.value_or(o.sampling.top_k);
  o.sampling.repetition_penalty = s.repetition_penalty.value_or(o.sampling.repetition_penalty);
  o.sampling.seed = s.seed;
  o.max_tokens = s.max_tokens;
  o.end_tokens = text.end_tokens;
  o.stop = s.stop;
  return o;
}

}  // namespace

LanguageModel::LanguageModel(const std::string& model, const ModelSettings& settings) {
  loaded_ = guarded([&] {
    auto loaded = std::make_unique<Loaded>();
    loaded->source = open_weights(resolve_model(model).string());
    loaded->text = load_text_model(*loaded->source);
    loaded->runner = std::make_unique<Runner>(loaded->source, load_options(settings));
    loaded->runner->load();
    loaded->engine = std::make_unique<Engine>(*loaded->runner);
    return loaded;
  });
}

LanguageModel::~LanguageModel() = default;

Generated LanguageModel::generate(const std::string& prompt, const GenerateSettings& settings,
                                  const std::function<void(std::string_view)>& on_text) {
  return guarded([&] {
    const TextModel& text = loaded_->text;
    Completion completion = complete(*loaded_->engine, text.tokenizer.get(), completion_options(text, prompt, settings),
                                     [&](std::string_view piece) {
                                       if (on_text) on_text(piece);
                                     });
    return Generated{std::move(completion.text), std::move(completion.tokens),
                     completion.finish == FinishReason::Length, completion.prompt_tokens};
  });
}

std::vector<int32_t> LanguageModel::tokenize(const std::string& text) const {
  return guarded([&] { return loaded_->text.tokenizer->encode(text); });
}

std::string LanguageModel::detokenize(const std::vector<int32_t>& tokens) const {
  return guarded([&] { return loaded_->text.tokenizer->decode(tokens); });
}

}  // namespace millrace
