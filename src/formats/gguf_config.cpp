// Config over GGUF metadata.
#include <fmt/format.h>

#include "base/error.h"
#include "formats/config_lookup.h"
#include "formats/gguf_metadata.h"

namespace millrace {
namespace {

constexpr uint64_t kLongestList = 1 << 20;  // for per-layer values and token ids; vocabularies are read elsewhere

ConfigValue convert_scalar(const GgufValue& value) {
  if (const auto integer = value.integer()) return {*integer};
  if (const auto number = value.number()) return {*number};
  if (const auto boolean = value.boolean()) return {*boolean};
  if (const auto string = value.string()) return {std::string(*string)};
  return {ConfigValue::Object{}};  // a nested array: no model reads one
}

class GgufLookup : public Config::Lookup {
 public:
  GgufLookup(const GgufMetadata& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}

  std::string spell(ConfigKey key) const override {
    if (key.gguf.empty() || key.gguf.starts_with("general.") || key.gguf.starts_with("tokenizer.")) {
      return std::string(key.gguf);
    }
    return fmt::format("{}.{}", architecture_, key.gguf);
  }

  std::optional<ConfigValue> find(const std::string& spelled) const override {
    const GgufValue* value = metadata_.find(spelled);
    if (value == nullptr) return std::nullopt;
    if (!value->is_array()) return convert_scalar(*value);
    if (value->size() > kLongestList) {
      fail(ErrorKind::BadFile, "{}: the list '{}' is too long", metadata_.origin(), spelled);
    }
    std::vector<ConfigValue> list;
    for (const GgufValue& element : value->elements()) list.push_back(convert_scalar(element));
    return ConfigValue{std::move(list)};
  }

 private:
  const GgufMetadata& metadata_;
  std::string architecture_;
};

}  // namespace

Config Config::from_gguf(const GgufMetadata& metadata) {
  std::string architecture(metadata.string("general.architecture").value_or(""));
  auto lookup = std::make_unique<GgufLookup>(metadata, architecture);
  return Config(std::move(lookup), metadata.origin(), std::move(architecture));
}

}  // namespace millrace
