#include "models/pooling_settings.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/json.h"
#include "models/decoder_config.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

std::optional<Json> read_file(const WeightSource& source, const std::string& name) {
  const auto text = source.text(name);
  if (!text) return std::nullopt;
  return parse_json(*text, source.origin() + "/" + name);
}

template <class T>
T value(const WeightSource& source, const Json& json, const char* key, T usual) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end() || found->is_null()) return usual;
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    fail(ErrorKind::BadFile, "{}: '{}' of a module has the wrong type", source.origin(), key);
  }
}

PoolKind read_mode(const WeightSource& source, const Json& config) {
  if (const auto name = value<std::string>(source, config, "pooling_mode", ""); !name.empty()) {
    if (name == "cls") return PoolKind::First;
    if (name == "mean") return PoolKind::Mean;
    if (name == "lasttoken") return PoolKind::Last;
    refuse(source, "pooling '" + name + "'");
  }
  std::optional<PoolKind> kind;
  const auto offer = [&](const char* key, std::optional<PoolKind> offered) {
    if (!value(source, config, key, false)) return;
    if (!offered || kind) refuse(source, std::string("pooling with '") + key + "'");
    kind = offered;
  };
  offer("pooling_mode_cls_token", PoolKind::First);
  offer("pooling_mode_mean_tokens", PoolKind::Mean);
  offer("pooling_mode_lasttoken", PoolKind::Last);
  for (const char* other :
       {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens"}) {
    offer(other, std::nullopt);
  }
  return kind.value_or(PoolKind::Mean);
}

PoolingSettings::Dense read_dense(const WeightSource& source, const std::string& path, const Json& config) {
  PoolingSettings::Dense dense{path + ".linear."};
  dense.in = value<int64_t>(source, config, "in_features", 0);
  dense.out = value<int64_t>(source, config, "out_features", 0);
  constexpr int64_t kMost = 1 << 20;
  if (dense.in < 1 || dense.in > kMost || dense.out < 1 || dense.out > kMost)
    fail(ErrorKind::BadFile, "{}: {}/config.json has implausible sizes", source.origin(), path);
  const auto function = value<std::string>(source, config, "activation_function", "torch.nn.modules.activation.Tanh");
  dense.tanh = function.ends_with(".Tanh");
  if (!dense.tanh && !function.ends_with(".Identity")) refuse(source, "a dense module with " + function);
  return dense;
}

PoolingSettings read_modules(const WeightSource& source, const Json& modules) {
  PoolingSettings settings;
  settings.normalise = false;
  if (!modules.is_array()) fail(ErrorKind::BadFile, "{}: modules.json is not a list", source.origin());
  for (const Json& module : modules) {
    const auto type = value<std::string>(source, module, "type", ""),
               path = value<std::string>(source, module, "path", "");
    const Json config = path.empty() ? Json() : read_file(source, path + "/config.json").value_or(Json());
    if (type.ends_with("Pooling")) {
      settings.kind = read_mode(source, config);
    } else if (type.ends_with("Dense")) {
      settings.dense.push_back(read_dense(source, path, config));
    } else if (type.ends_with("Normalize")) {
      settings.normalise = true;
    } else if (!type.ends_with("Transformer")) {
      refuse(source, "the sentence-transformers module '" + type + "'");
    }
  }
  return settings;
}

}  // namespace

PoolingSettings read_pooling(const WeightSource& source) {
  if (source.gguf() != nullptr) {
    PoolingSettings settings;
    const int64_t type = source.config().optional_integer({.gguf = "pooling_type"}, {-1, 4}).value_or(0);
    if (type == 1) settings.kind = PoolKind::Mean;
    if (type == 2) settings.kind = PoolKind::First;
    if (type == 3) settings.kind = PoolKind::Last;
    settings.ranks = type == 4;
    return settings;
  }
  PoolingSettings settings;
  if (const auto modules = read_file(source, "modules.json")) settings = read_modules(source, *modules);
  if (const auto limits = read_file(source, "sentence_bert_config.json"))
    settings.longest = std::max<int64_t>(0, value<int64_t>(source, *limits, "max_seq_length", 0));
  return settings;
}

}  // namespace millrace
