#include "engine/sentence_prompts.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/json.h"

namespace millrace {

SentencePrompts read_sentence_prompts(const WeightSource& source) {
  constexpr const char* kFile = "config_sentence_transformers.json";
  SentencePrompts prompts;
  const auto text = source.text(kFile);
  if (!text) return prompts;
  const nlohmann::json config = parse_json(*text, source.origin() + "/" + kFile);
  const auto wrong = [&](const char* key) { fail(ErrorKind::BadFile, "{}/{}: '{}'", source.origin(), kFile, key); };
  if (!config.is_object()) wrong("not an object");
  if (const auto found = config.find("prompts"); found != config.end() && !found->is_null()) {
    if (!found->is_object()) wrong("prompts");
    for (const auto& [name, value] : found->items()) {
      if (value.is_null()) continue;
      if (!value.is_string()) wrong("prompts");
      prompts.texts[name] = value.get<std::string>();
    }
  }
  if (const auto found = config.find("default_prompt_name"); found != config.end() && !found->is_null()) {
    if (!found->is_string() || !prompts.texts.contains(found->get<std::string>())) wrong("default_prompt_name");
    prompts.usual = found->get<std::string>();
  }
  return prompts;
}

}  // namespace millrace
