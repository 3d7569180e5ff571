// A model's hyper-parameters, from GGUF metadata or a Hugging Face config.json. Every value is validated when read;
// errors name the file and the key.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace millrace {

class GgufMetadata;

// The two names of one value. `hf` is a dotted path into config.json ("rope_parameters.rope_theta"). `gguf` is relative
// to the architecture's prefix ("block_count" is "llama.block_count"), unless it starts with "general." or
// "tokenizer.". An empty name: this convention has no such key.
struct ConfigKey {
  std::string_view hf = {};
  std::string_view gguf = {};
};

// A value as parsed, before a type is required of it. A JSON null counts as absent.
struct ConfigValue {
  struct Object {};
  std::variant<bool, int64_t, double, std::string, std::vector<ConfigValue>, Object> value;
};

class Config {
 public:
  // The plausible range of a count or an id; values outside are errors.
  struct Range {
    int64_t least = 0;
    int64_t most = std::numeric_limits<int32_t>::max();
  };

  static Config from_gguf(const GgufMetadata& metadata);  // keeps a reference
  // Keys of older transformers are normalized to those of version 5 (hf_config.h). Values of text_config override outer
  // ones.
  static Config from_hf(std::string_view json, std::string origin);
  ~Config();
  Config(Config&&) noexcept;

  const std::string& architecture() const { return architecture_; }  // "llama", "LlamaForCausalLM"
  const std::string& origin() const { return origin_; }

  bool has(ConfigKey key) const { return find(key).has_value(); }
  bool has_list(ConfigKey key) const;  // some keys hold one value for all layers or a list of one value per layer

  // Required values: absence is an error.
  int64_t integer(ConfigKey key, Range range) const;
  int64_t integer(ConfigKey key) const { return integer(key, Range{}); }
  double number(ConfigKey key) const;
  bool boolean(ConfigKey key) const;
  std::string string(ConfigKey key) const;

  // Optional values: absence is allowed, a wrong type or an implausible value is an error.
  std::optional<int64_t> optional_integer(ConfigKey key, Range range) const;
  std::optional<int64_t> optional_integer(ConfigKey key) const { return optional_integer(key, Range{}); }
  std::optional<double> optional_number(ConfigKey key) const;
  std::optional<bool> optional_boolean(ConfigKey key) const;
  std::optional<std::string> optional_string(ConfigKey key) const;

  // T is int64_t, double, bool or std::string. The first is required; the second is empty when absent.
  template <class T>
  std::vector<T> array(ConfigKey key) const;
  template <class T>
  std::optional<std::vector<T>> optional_array(ConfigKey key) const;

  // The key as this file spells it, for the caller's own messages.
  std::string spell(ConfigKey key) const;

  // Fails with BadFile: "<file>: '<key>' <what>".
  [[noreturn]] void fail_key(ConfigKey key, std::string_view what) const;

  class Lookup;  // one implementation per convention

 private:
  Config(std::unique_ptr<Lookup> lookup, std::string origin, std::string architecture);
  std::optional<ConfigValue> find(ConfigKey key) const;
  template <class T>
  std::optional<T> get(ConfigKey key) const;
  template <class T>
  T require(ConfigKey key, std::optional<T> value) const;

  std::unique_ptr<Lookup> lookup_;
  std::string origin_, architecture_;
};

}  // namespace millrace
