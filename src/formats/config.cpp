#include "formats/config.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "formats/config_lookup.h"

namespace millrace {
namespace {

// A value as T, or nullopt if it has another type. Integers convert to floats and whole floats to integers: JSON writes
// 10000 for a float, and some exporters write 4096.0 for a count.
template <class T>
std::optional<T> convert(const ConfigValue& value) {
  if (const auto* exact = std::get_if<T>(&value.value)) return *exact;
  return std::nullopt;
}

template <>
std::optional<double> convert<double>(const ConfigValue& value) {
  if (const auto* number = std::get_if<double>(&value.value)) return *number;
  if (const auto* integer = std::get_if<int64_t>(&value.value)) return static_cast<double>(*integer);
  return std::nullopt;
}

template <>
std::optional<int64_t> convert<int64_t>(const ConfigValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value.value)) return *integer;
  const auto* number = std::get_if<double>(&value.value);
  if (number != nullptr && std::floor(*number) == *number && std::abs(*number) < 0x1p53) {
    return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

template <class T>
constexpr std::string_view kKindName = "a text";
template <>
constexpr std::string_view kKindName<bool> = "true or false";
template <>
constexpr std::string_view kKindName<int64_t> = "a whole number";
template <>
constexpr std::string_view kKindName<double> = "a number";

std::string describe(const ConfigValue& value) {
  struct Describe {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(const std::string& v) const { return fmt::format("\"{}\"", v.substr(0, 60)); }
    std::string operator()(const std::vector<ConfigValue>& v) const { return fmt::format("a list of {}", v.size()); }
    std::string operator()(ConfigValue::Object) const { return "an object"; }
  };
  return std::visit(Describe{}, value.value);
}

}  // namespace

Config::Config(std::unique_ptr<Lookup> lookup, std::string origin, std::string architecture)
    : lookup_(std::move(lookup)), origin_(std::move(origin)), architecture_(std::move(architecture)) {}
Config::~Config() = default;
Config::Config(Config&&) noexcept = default;

std::string Config::spell(ConfigKey key) const { return lookup_->spell(key); }

void Config::fail_key(ConfigKey key, std::string_view what) const {
  fail(ErrorKind::BadFile, "{}: '{}' {}", origin_, spell(key), what);
}

std::optional<ConfigValue> Config::find(ConfigKey key) const {
  const std::string spelled = lookup_->spell(key);
  return spelled.empty() ? std::nullopt : lookup_->find(spelled);
}

bool Config::has_list(ConfigKey key) const {
  const auto value = find(key);
  return value && std::holds_alternative<std::vector<ConfigValue>>(value->value);
}

template <class T>
std::optional<T> Config::get(ConfigKey key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  auto converted = convert<T>(*value);
  if (!converted) fail_key(key, fmt::format("should be {}, the file has {}", kKindName<T>, describe(*value)));
  return converted;
}

template <class T>
T Config::require(ConfigKey key, std::optional<T> value) const {
  if (!value && spell(key).empty()) {
    fail(ErrorKind::BadFile, "{}: there is no key for '{}' here", origin_, key.hf.empty() ? key.gguf : key.hf);
  }
  if (!value) fail_key(key, "is missing");
  return *std::move(value);
}

std::optional<int64_t> Config::optional_integer(ConfigKey key, Range range) const {
  const auto value = get<int64_t>(key);
  if (value && (*value < range.least || *value > range.most)) {
    fail_key(key, fmt::format("is {}, not between {} and {}", *value, range.least, range.most));
  }
  return value;
}

std::optional<double> Config::optional_number(ConfigKey key) const {
  const auto value = get<double>(key);
  if (value && !std::isfinite(*value)) fail_key(key, fmt::format("is {}, not a finite number", *value));
  return value;
}

std::optional<bool> Config::optional_boolean(ConfigKey key) const { return get<bool>(key); }
std::optional<std::string> Config::optional_string(ConfigKey key) const { return get<std::string>(key); }

int64_t Config::integer(ConfigKey key, Range range) const { return require(key, optional_integer(key, range)); }
double Config::number(ConfigKey key) const { return require(key, optional_number(key)); }
bool Config::boolean(ConfigKey key) const { return require(key, optional_boolean(key)); }
std::string Config::string(ConfigKey key) const { return require(key, optional_string(key)); }

template <class T>
std::optional<std::vector<T>> Config::optional_array(ConfigKey key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  const auto* list = std::get_if<std::vector<ConfigValue>>(&value->value);
  if (list == nullptr) fail_key(key, fmt::format("should be a list, the file has {}", describe(*value)));
  std::vector<T> result;
  result.reserve(list->size());
  for (const ConfigValue& element : *list) {
    auto converted = convert<T>(element);
    if (!converted) fail_key(key, fmt::format("should hold {}, the file has {}", kKindName<T>, describe(element)));
    result.push_back(*std::move(converted));
  }
  return result;
}

template <class T>
std::vector<T> Config::array(ConfigKey key) const {
  return require(key, optional_array<T>(key));
}

template std::vector<int64_t> Config::array(ConfigKey) const;
template std::vector<double> Config::array(ConfigKey) const;
template std::vector<bool> Config::array(ConfigKey) const;
template std::vector<std::string> Config::array(ConfigKey) const;
template std::optional<std::vector<int64_t>> Config::optional_array(ConfigKey) const;
template std::optional<std::vector<double>> Config::optional_array(ConfigKey) const;
template std::optional<std::vector<bool>> Config::optional_array(ConfigKey) const;
template std::optional<std::vector<std::string>> Config::optional_array(ConfigKey) const;

}  // namespace millrace
