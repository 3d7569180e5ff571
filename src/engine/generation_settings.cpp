#include "engine/generation_settings.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"

namespace millrace {
namespace {

constexpr int64_t kLargestId = (int64_t(1) << 31) - 1;

// "eos_token_id" is a number, a list of numbers, or null.
void add_ids(const nlohmann::json& value, std::vector<int32_t>& ids) {
  if (value.is_number_integer()) {
    const auto id = value.get<int64_t>();
    if (id >= 0 && id <= kLargestId) ids.push_back(static_cast<int32_t>(id));
  } else if (value.is_array()) {
    for (const auto& entry : value) {
      if (entry.is_number_integer()) add_ids(entry, ids);
    }
  }
}

template <class T>
bool take(const nlohmann::json& json, const char* key, T& out) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return false;
  out = found->get<T>();
  return true;
}

void read_config(const std::string& text, const std::string& origin, GenerationSettings& settings) {
  const auto json = read_json(text);
  if (!json.is_object()) fail(ErrorKind::BadFile, "{}: generation_config.json is not a JSON object", origin);
  if (json.contains("eos_token_id")) add_ids(json["eos_token_id"], settings.end_tokens);
  SamplingParams params;
  bool any = take(json, "temperature", params.temperature);
  any |= take(json, "top_p", params.top_p);
  any |= take(json, "top_k", params.top_k);
  any |= take(json, "min_p", params.min_p);
  any |= take(json, "typical_p", params.typical_p);
  any |= take(json, "repetition_penalty", params.repetition_penalty);
  if (json.value("do_sample", nlohmann::json()) == nlohmann::json(false)) params.temperature = 0, any = true;
  if (any) settings.sampling = params;
}

void read_gguf(const GgufMetadata& gguf, GenerationSettings& settings) {
  SamplingParams params;
  bool any = false;
  const auto take_number = [&](const char* key, auto& out) {
    if (const auto value = gguf.number(key)) {
      out = static_cast<std::remove_reference_t<decltype(out)>>(*value);
      any = true;
    }
  };
  take_number("general.sampling.temp", params.temperature);
  take_number("general.sampling.top_k", params.top_k);
  take_number("general.sampling.top_p", params.top_p);
  take_number("general.sampling.min_p", params.min_p);
  take_number("general.sampling.penalty_repeat", params.repetition_penalty);
  if (any) settings.sampling = params;
}

}  // namespace

GenerationSettings read_generation_settings(const WeightSource& source) {
  GenerationSettings settings;
  if (const auto* gguf = source.gguf()) {
    read_gguf(*gguf, settings);
  } else {
    if (const auto text = source.text("generation_config.json")) read_config(*text, source.origin(), settings);
    if (const auto text = source.text("config.json")) {
      const auto json = read_json(*text);
      if (json.is_object() && json.contains("eos_token_id")) add_ids(json["eos_token_id"], settings.end_tokens);
    }
  }
  if (settings.sampling) {
    try {
      validate(*settings.sampling);
    } catch (const Error& e) {
      log().warn("{}: its sampling settings are ignored: {}", source.origin(), e.what());
      settings.sampling.reset();
    }
  }
  return settings;
}

}  // namespace millrace
