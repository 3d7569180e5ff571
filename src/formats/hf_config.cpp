#include "formats/hf_config.h"

#include <algorithm>

#include "base/error.h"
#include "formats/config_lookup.h"
#include "formats/hf_defaults.h"
#include "formats/json.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

// The member `key` of an object; null if it is absent or a JSON null.
const Json* member(const Json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void copy_if_absent(Json& target, const std::string& to, const Json& source, const std::string& from) {
  if (const Json* value = member(source, from); value != nullptr && member(target, to) == nullptr) target[to] = *value;
}

void lift_text_config(Json& config) {
  const Json* text = member(config, "text_config");
  if (text == nullptr || !text->is_object()) return;
  const Json inner = *text;
  for (const auto& item : inner.items()) {
    if (item.key() == "tie_word_embeddings" && config.contains(item.key())) continue;  // the outer model's counts
    if (!item.value().is_null()) config[item.key()] = item.value();
  }
}

// Copies rope values that transformers 4 keeps outside rope_scaling into one rope_parameters object.
void complete_rope(Json& rope, const Json& config) {
  copy_if_absent(rope, "rope_type", rope, "type");
  if (const Json* type = member(config, "model_type"); type != nullptr && *type == "gpt_neox") {
    copy_if_absent(rope, "rope_theta", config, "rotary_emb_base");
    copy_if_absent(rope, "partial_rotary_factor", config, "rotary_pct");
  }
  copy_if_absent(rope, "rope_theta", config, "rope_theta");
  copy_if_absent(rope, "partial_rotary_factor", config, "partial_rotary_factor");
  if (member(rope, "rope_type") == nullptr) rope["rope_type"] = "default";
  // Phi-3 keeps the trained length at the top level, and that value wins.
  const Json* trained = member(config, "original_max_position_embeddings");
  if (trained != nullptr && rope["rope_type"] != "default") rope["original_max_position_embeddings"] = *trained;
}

bool has_two_ropes(const Json& config) {
  const Json* type = member(config, "model_type");
  return member(config, "rope_local_base_freq") != nullptr ||
         (type != nullptr && type->is_string() &&
          (type->get<std::string>().starts_with("gemma3") || *type == "olmo3" || *type == "modernbert"));
}

void lift_rope(Json& config) {
  const Json* scaling = member(config, "rope_scaling");
  const Json* given = scaling != nullptr && !scaling->empty() ? scaling : member(config, "rope_parameters");
  if (given != nullptr && !given->is_object()) return;
  Json rope = given != nullptr ? *given : Json::object();
  if (member(rope, "full_attention") == nullptr && has_two_ropes(config)) {
    Json sliding = {{"rope_type", "default"}};
    copy_if_absent(sliding, "rope_theta", config, "rope_local_base_freq");
    complete_rope(rope, config);
    rope = {{"full_attention", std::move(rope)}, {"sliding_attention", std::move(sliding)}};
  } else if (member(rope, "full_attention") != nullptr) {
    for (auto& one : rope) {
      if (one.is_object()) complete_rope(one, config);
    }
  } else {
    complete_rope(rope, config);
  }
  config["rope_parameters"] = std::move(rope);
}

ConfigValue convert(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return {json.get<bool>()};
    case Json::value_t::number_integer:
      return {json.get<int64_t>()};
    case Json::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value > uint64_t{INT64_MAX}) return {static_cast<double>(value)};
      return {static_cast<int64_t>(value)};
    }
    case Json::value_t::number_float:
      return {json.get<double>()};
    case Json::value_t::string:
      return {json.get<std::string>()};
    case Json::value_t::array: {
      std::vector<ConfigValue> list;
      for (const Json& element : json) list.push_back(convert(element));
      return {std::move(list)};
    }
    default:
      return {ConfigValue::Object{}};
  }
}

class HfLookup : public Config::Lookup {
 public:
  explicit HfLookup(Json config) : config_(std::move(config)) {}

  std::string spell(ConfigKey key) const override { return std::string(key.hf); }

  std::optional<ConfigValue> find(const std::string& path) const override {
    const Json* at = &config_;
    for (size_t begin = 0; at != nullptr && begin <= path.size();) {
      const size_t dot = std::min(path.find('.', begin), path.size());
      at = member(*at, path.substr(begin, dot - begin));
      begin = dot + 1;
    }
    return at == nullptr ? std::nullopt : std::optional(convert(*at));
  }

 private:
  Json config_;
};

// Python writes infinities as bare words, which JSON does not allow. This puts a huge number in their place and null
// in the place of NaN, outside of strings.
std::string without_python_words(std::string_view json) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {{"Infinity", "1e308"}, {"NaN", "null"}};
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < json.size();) {
    const auto word = std::find_if(std::begin(kWords), std::end(kWords),
                                   [&](const auto& w) { return json.substr(i, w.first.size()) == w.first; });
    if (!quoted && word != std::end(kWords)) {
      out += word->second;
      i += word->first.size();
      continue;
    }
    if (json[i] == '"') quoted = !quoted;
    if (quoted && json[i] == '\\' && i + 1 < json.size()) out += json[i++];
    out += json[i++];
  }
  return out;
}

// Infinity as transformers 5 writes it: {"__float__": "Infinity"}; and sizes that are "auto", which means derived.
void normalize_mixer(Json& config) {
  if (const auto limit = config.find("time_step_limit"); limit != config.end() && limit->is_array()) {
    for (Json& bound : *limit) {
      if (bound.is_object() && bound.value("__float__", Json()) == "Infinity") bound = 1e308;
    }
  }
  if (const auto size = config.find("mamba_d_head"); size != config.end() && *size == "auto") config.erase(size);
}

std::string architecture_of(const Json& config) {
  const Json* list = member(config, "architectures");
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string()) {
    return list->front().get<std::string>();
  }
  const Json* type = member(config, "model_type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : "";
}

}  // namespace

Json normalize_hf_config(Json config) {
  lift_text_config(config);
  add_hf_defaults(config);
  copy_if_absent(config, "dtype", config, "torch_dtype");
  lift_rope(config);
  normalize_mixer(config);
  return config;
}

Config Config::from_hf(std::string_view json, std::string origin) {
  Json config = parse_json(without_python_words(json), origin);
  if (!config.is_object()) fail(ErrorKind::BadFile, "{}: not a JSON object", origin);
  std::string architecture = architecture_of(config);
  auto lookup = std::make_unique<HfLookup>(normalize_hf_config(std::move(config)));
  return Config(std::move(lookup), std::move(origin), std::move(architecture));
}

}  // namespace millrace
