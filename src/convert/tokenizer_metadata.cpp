#include "convert/tokenizer_metadata.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "convert/vocabulary.h"
#include "engine/generation_settings.h"
#include "engine/text_model.h"

namespace millrace {
namespace {

// Ids of config.json, for tokenizers that do not name their special tokens.
std::optional<int32_t> configured_id(const WeightSource& source, std::string_view key, int64_t rows) {
  const Config& config = source.config();
  if (config.has_list({.hf = key})) {
    const auto ids = config.array<int64_t>({.hf = key});
    return ids.empty() || ids[0] < 0 || ids[0] >= rows ? std::nullopt : std::optional(static_cast<int32_t>(ids[0]));
  }
  const auto id = config.optional_integer({.hf = key}, {-1, INT32_MAX});
  return id && *id >= 0 && *id < rows ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
}

// End tokens of generation_config.json that readers of the file would not know.
void add_end_tokens(const WeightSource& source, GgufVocabulary& vocabulary) {
  const auto known = tokenizer_from_gguf(vocabulary)->end_of_generation();
  for (const int32_t id : read_generation_settings(source).end_tokens) {
    if (id < 0 || id >= std::ssize(vocabulary.tokens)) continue;
    if (std::find(known.begin(), known.end(), id) != known.end()) continue;
    std::optional<int32_t>& place = !vocabulary.eos   ? vocabulary.eos
                                    : !vocabulary.eot ? vocabulary.eot
                                                      : vocabulary.eom;
    if (!place) place = id;
  }
}

void add_templates(const WeightSource& source, GgufMetadataBuilder& out) {
  const auto chat = load_chat_templates(source);
  if (!chat) return;
  std::vector<std::string> others;
  for (const std::string& name : chat->sources.names()) {
    if (name != "default") others.push_back(name);
    const std::string key = name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name;
    out.add_string(key, chat->sources.text(name));
  }
  if (!others.empty()) out.add_string_list("tokenizer.chat_templates", others);
}

}  // namespace

void add_tokenizer_metadata(const WeightSource& source, const std::string& architecture, int64_t rows,
                            GgufMetadataBuilder& out) {
  const auto json = source.text("tokenizer.json");
  if (!json) {
    log().warn("{}: has no tokenizer.json, so the GGUF file has no tokenizer", source.origin());
    out.add_string("tokenizer.ggml.model", "no_vocab");
    return;
  }
  GgufVocabulary vocabulary =
      gguf_vocabulary(*json, source.text("tokenizer_config.json").value_or(""), architecture, rows);
  if (!vocabulary.bos) vocabulary.bos = configured_id(source, "bos_token_id", rows);
  if (!vocabulary.eos) vocabulary.eos = configured_id(source, "eos_token_id", rows);
  add_end_tokens(source, vocabulary);
  add_vocabulary(vocabulary, out);
  add_templates(source, out);
}

}  // namespace millrace
