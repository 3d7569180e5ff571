// A model's hyper-parameters, whichever convention its file speaks. Every value is checked where it is read; errors
// name the file and the key.
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

// The two names of one value. `hf` is a dotted path into config.json ("rope_parameters.rope_theta"). `gguf` comes after
// the architecture's prefix ("block_count" is "llama.block_count"), unless it starts with "general." or "tokenizer.".
// An empty name: the convention has no such key.
struct ConfigKey {
  std::string_view hf = {};
  std::string_view gguf = {};
};

// A value before anyone said what it should be. A JSON null counts as absent and never becomes one.
struct ConfigValue {
  struct Object {};
  std::variant<bool, int64_t, double, std::string, std::vector<ConfigValue>, Object> value;
};

class Config {
 public:
  // What is plausible for a count or an id; anything else is refused.
  struct Range {
    int64_t least = 0;
    int64_t most = std::numeric_limits<int32_t>::max();
  };

  static Config from_gguf(const GgufMetadata& metadata);  // keeps a reference
  // Spellings of older transformers are brought to those of version 5 (see hf_config.h); the values of text_config,
  // where there is one, come before the outer ones.
  static Config from_hf(std::string_view json, std::string origin);
  ~Config();
  Config(Config&&) noexcept;

  const std::string& architecture() const { return architecture_; }  // "llama", "LlamaForCausalLM"
  const std::string& origin() const { return origin_; }

  bool has(ConfigKey key) const { return find(key).has_value(); }

  // Required: absent is an error.
  int64_t integer(ConfigKey key, Range range) const;
  int64_t integer(ConfigKey key) const { return integer(key, Range{}); }
  double number(ConfigKey key) const;
  bool boolean(ConfigKey key) const;
  std::string string(ConfigKey key) const;

  // Absent is fine, a wrong kind or an absurd value is not.
  std::optional<int64_t> optional_integer(ConfigKey key, Range range) const;
  std::optional<int64_t> optional_integer(ConfigKey key) const { return optional_integer(key, Range{}); }
  std::optional<double> optional_number(ConfigKey key) const;
  std::optional<bool> optional_boolean(ConfigKey key) const;
  std::optional<std::string> optional_string(ConfigKey key) const;

  // T is int64_t, double, bool or std::string. Required / empty when absent.
  template <class T>
  std::vector<T> array(ConfigKey key) const;
  template <class T>
  std::optional<std::vector<T>> optional_array(ConfigKey key) const;

  // As the file spells the key, for messages of the caller's own.
  std::string spell(ConfigKey key) const;

  // Fails with BadFile: "<file>: '<key>' <what>".
  [[noreturn]] void fail_key(ConfigKey key, std::string_view what) const;

  class Lookup;  // one per convention

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
