#include "engine/text_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "engine/generation_settings.h"

namespace millrace {
namespace {

std::optional<int32_t> optional_id(const GgufMetadata& gguf, const char* key) {
  const auto value = gguf.integer(key);
  if (!value || *value < 0) return std::nullopt;
  return static_cast<int32_t>(std::min<int64_t>(*value, INT32_MAX));  // stays larger than any vocabulary
}

// GGUF files give special tokens by id; templates need their text.
nlohmann::ordered_json gguf_special_tokens(const GgufMetadata& gguf) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  const auto tokens = gguf.strings("tokenizer.ggml.tokens").value_or(std::vector<std::string_view>());
  for (const auto& [name, key] :
       {std::pair("bos_token", "tokenizer.ggml.bos_token_id"), std::pair("eos_token", "tokenizer.ggml.eos_token_id"),
        std::pair("unk_token", "tokenizer.ggml.unknown_token_id"),
        std::pair("pad_token", "tokenizer.ggml.padding_token_id")}) {
    const auto id = optional_id(gguf, key);
    if (id && static_cast<size_t>(*id) < tokens.size()) variables[name] = tokens[static_cast<size_t>(*id)];
  }
  return variables;
}

// Benchmark files declare that they have no vocabulary.
bool has_vocabulary(const GgufMetadata& gguf) {
  const auto model = gguf.string("tokenizer.ggml.model").value_or("");
  return !model.empty() && model != "no_vocab" && model != "none";
}

GgufVocabulary read_vocabulary(const GgufMetadata& gguf) {
  const auto text = [&](const char* key) { return std::string(gguf.string(key).value_or("")); };
  const auto texts = [&](const char* key) {
    const auto views = gguf.strings(key).value_or(std::vector<std::string_view>());
    return std::vector<std::string>(views.begin(), views.end());
  };
  GgufVocabulary v;
  v.architecture = text("general.architecture");
  v.model = text("tokenizer.ggml.model");
  if (!has_vocabulary(gguf)) fail(ErrorKind::NotFound, "{}: has no tokenizer (no tokenizer.ggml.model)", gguf.origin());
  v.pre = text("tokenizer.ggml.pre");
  v.tokens = texts("tokenizer.ggml.tokens");
  v.merges = texts("tokenizer.ggml.merges");
  for (const double score : gguf.numbers("tokenizer.ggml.scores").value_or(std::vector<double>()))
    v.scores.push_back(static_cast<float>(score));
  for (const int64_t type : gguf.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>()))
    v.types.push_back(static_cast<int32_t>(type));
  v.bos = optional_id(gguf, "tokenizer.ggml.bos_token_id");
  v.eos = optional_id(gguf, "tokenizer.ggml.eos_token_id");
  v.eot = optional_id(gguf, "tokenizer.ggml.eot_token_id");
  v.eom = optional_id(gguf, "tokenizer.ggml.eom_token_id");
  v.unknown = optional_id(gguf, "tokenizer.ggml.unknown_token_id");
  v.separator = optional_id(gguf, "tokenizer.ggml.seperator_token_id");  // GGUF's spelling
  v.padding = optional_id(gguf, "tokenizer.ggml.padding_token_id");
  v.cls = optional_id(gguf, "tokenizer.ggml.cls_token_id");
  v.mask = optional_id(gguf, "tokenizer.ggml.mask_token_id");
  for (const int64_t byte : gguf.integers("tokenizer.ggml.precompiled_charsmap").value_or(std::vector<int64_t>())) {
    v.precompiled_charsmap.push_back(static_cast<char>(byte));
  }
  v.add_bos = gguf.boolean("tokenizer.ggml.add_bos_token");
  v.add_eos = gguf.boolean("tokenizer.ggml.add_eos_token");
  v.add_sep = gguf.boolean("tokenizer.ggml.add_sep_token");
  v.add_space_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix");
  v.remove_extra_whitespaces = gguf.boolean("tokenizer.ggml.remove_extra_whitespaces");
  return v;
}

// The text room does not know where its input comes from.
template <class Make>
auto from_file(const WeightSource& source, Make make) {
  try {
    return make();
  } catch (const Error& e) {
    fail(e.kind(), "{}: {}", source.origin(), e.what());
  }
}

}  // namespace

bool has_tokenizer(const WeightSource& source) {
  const auto* gguf = source.gguf();
  return gguf != nullptr ? has_vocabulary(*gguf) : source.text("tokenizer.json").has_value();
}

std::shared_ptr<const Tokenizer> load_tokenizer(const WeightSource& source) {
  if (source.gguf() != nullptr) {
    const GgufVocabulary vocabulary = read_vocabulary(*source.gguf());
    return from_file(source, [&] { return tokenizer_from_gguf(vocabulary); });
  }
  const auto json = source.text("tokenizer.json");
  if (!json) fail(ErrorKind::NotFound, "{}: has no tokenizer.json", source.origin());
  const std::string config = source.text("tokenizer_config.json").value_or("");
  return from_file(source, [&] { return tokenizer_from_json(*json, config); });
}

std::optional<ChatTemplates> load_chat_templates(const WeightSource& source, const std::string& own) {
  ChatTemplates chat;
  if (const auto* gguf = source.gguf()) {
    for (const auto& entry : gguf->entries()) {
      if (!entry.key.starts_with("tokenizer.chat_template")) continue;
      if (const auto text = gguf->string(entry.key)) chat.sources.add_from_gguf(entry.key, *text);
    }
    chat.special_tokens = gguf_special_tokens(*gguf);
  } else {
    const auto config = read_ordered_json(source.text("tokenizer_config.json").value_or("{}"));
    if (!config.is_object())
      fail(ErrorKind::BadFile, "{}: tokenizer_config.json is not a JSON object", source.origin());
    chat.sources.add_from_tokenizer_config(config);
    if (auto text = source.text("chat_template.jinja")) chat.sources.add("default", std::move(*text));
    chat.special_tokens = special_token_variables(config);
  }
  if (!own.empty()) {
    chat.sources = {};
    chat.sources.add("default", own);
  }
  if (chat.sources.empty()) return std::nullopt;
  return chat;
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat) {
  return tokenizer.encode(chat.text, {.add_special = false, .parse_special = true, .content = chat.content});
}

RenderedChat render_chat(const TextModel& model, nlohmann::ordered_json context) {
  const auto tools = context.find("tools");
  const bool with_tools = tools != context.end() && tools->is_array() && !tools->empty();
  for (const auto& [name, text] : model.chat->special_tokens.items()) {
    if (!context.contains(name)) context[name] = text;
  }
  return ChatTemplate(model.chat->sources.choose(with_tools)).render_chat(context, model.chat->special_tokens);
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
