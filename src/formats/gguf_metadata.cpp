#include "formats/gguf_metadata.h"

#include "base/error.h"

namespace millrace {
namespace {

// Calls one of GgufValue's accessors on the key's value; a value of another type is an error that names the key.
template <class T>
std::optional<T> checked(const GgufMetadata& metadata, std::string_view key, std::string_view wanted,
                         std::optional<T> (GgufValue::*get)() const) {
  const GgufValue* value = metadata.find(key);
  if (value == nullptr) return std::nullopt;
  std::optional<T> result = (value->*get)();
  if (!result) {
    fail(ErrorKind::BadFile, "{}: '{}' should be {}, the file has {}", metadata.origin(), key, wanted,
         name(value->type()));
  }
  return result;
}

}  // namespace

void GgufMetadata::add(std::string_view key, GgufValue value) {
  if (!index_.emplace(key, entries_.size()).second) {
    fail(ErrorKind::BadFile, "{}: the key '{}' appears twice", origin_, key);
  }
  entries_.push_back({key, value});
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key) const {
  return checked(*this, key, "an integer", &GgufValue::integer);
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  return checked(*this, key, "a number", &GgufValue::number);
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  return checked(*this, key, "a boolean", &GgufValue::boolean);
}

std::optional<std::string_view> GgufMetadata::string(std::string_view key) const {
  return checked(*this, key, "a string", &GgufValue::string);
}

std::optional<std::vector<std::string_view>> GgufMetadata::strings(std::string_view key) const {
  return checked(*this, key, "an array of strings", &GgufValue::strings);
}

std::optional<std::vector<int64_t>> GgufMetadata::integers(std::string_view key) const {
  return checked(*this, key, "an array of integers", &GgufValue::integers);
}

std::optional<std::vector<double>> GgufMetadata::numbers(std::string_view key) const {
  return checked(*this, key, "an array of numbers", &GgufValue::numbers);
}

}  // namespace millrace
