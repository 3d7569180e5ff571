#include "engine/text_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/generation_settings.h"

namespace millrace {
namespace {

std::optional<int32_t> optional_id(const GgufMetadata& gguf, const char* key) {
  const auto value = gguf.integer(key);
  return value && *value >= 0 ? std::optional(static_cast<int32_t>(*value)) : std::nullopt;
}

GgufVocabulary read_vocabulary(const GgufMetadata& gguf) {
  const auto text = [&](const char* key) { return std::string(gguf.string(key).value_or("")); };
  const auto texts = [&](const char* key) {
    const auto views = gguf.strings(key).value_or(std::vector<std::string_view>());
    return std::vector<std::string>(views.begin(), views.end());
  };
  GgufVocabulary v;
  v.model = text("tokenizer.ggml.model");
  if (v.model.empty()) fail(ErrorKind::NotFound, "{}: has no tokenizer (no tokenizer.ggml.model)", gguf.origin());
  v.pre = text("tokenizer.ggml.pre");
  v.tokens = texts("tokenizer.ggml.tokens");
  v.merges = texts("tokenizer.ggml.merges");
  for (const double score : gguf.numbers("tokenizer.ggml.scores").value_or(std::vector<double>())) v.scores.push_back(static_cast<float>(score));
  for (const int64_t type : gguf.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>())) v.types.push_back(static_cast<int32_t>(type));
  v.bos = optional_id(gguf, "tokenizer.ggml.bos_token_id");
  v.eos = optional_id(gguf, "tokenizer.ggml.eos_token_id");
  v.eot = optional_id(gguf, "tokenizer.ggml.eot_token_id");
  v.eom = optional_id(gguf, "tokenizer.ggml.eom_token_id");
  v.unknown = optional_id(gguf, "tokenizer.ggml.unknown_token_id");
  v.separator = optional_id(gguf, "tokenizer.ggml.seperator_token_id");  // GGUF spells it so
  v.padding = optional_id(gguf, "tokenizer.ggml.padding_token_id");
  v.add_bos = gguf.boolean("tokenizer.ggml.add_bos_token");
  v.add_eos = gguf.boolean("tokenizer.ggml.add_eos_token");
  v.add_space_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix");
  v.remove_extra_whitespaces = gguf.boolean("tokenizer.ggml.remove_extra_whitespaces");
  return v;
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const WeightSource& source) {
  if (const auto* gguf = source.gguf()) return tokenizer_from_gguf(read_vocabulary(*gguf));
  const auto json = source.text("tokenizer.json");
  if (!json) fail(ErrorKind::NotFound, "{}: has no tokenizer.json", source.origin());
  return tokenizer_from_json(*json, source.text("tokenizer_config.json").value_or(""));
}

TextModel load_text_model(const WeightSource& source) {
  TextModel model;
  model.tokenizer = load_tokenizer(source);
  model.chat = load_chat_templates(source);
  GenerationSettings settings = read_generation_settings(source);
  model.sampling_from_model = settings.sampling.has_value();
  model.sampling = settings.sampling.value_or(SamplingParams{.temperature = 0.7f, .top_k = 40, .top_p = 0.95f});
  model.end_tokens = std::move(settings.end_tokens);
  const auto& own = model.tokenizer->end_of_generation();
  model.end_tokens.insert(model.end_tokens.end(), own.begin(), own.end());
  std::sort(model.end_tokens.begin(), model.end_tokens.end());
  model.end_tokens.erase(std::unique(model.end_tokens.begin(), model.end_tokens.end()), model.end_tokens.end());
  return model;
}

}  // namespace millrace
