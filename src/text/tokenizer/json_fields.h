// Reads fields of tokenizer.json. A missing field or a wrong type is a BadFile error with the field's name.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace millrace {

inline std::string type_name(const nlohmann::json& object) {
  const auto type = object.is_object() ? object.find("type") : object.end();
  if (!object.is_object() || type == object.end() || !type->is_string()) {
    fail(ErrorKind::BadFile, "tokenizer.json: a part of it has no type");
  }
  return type->get<std::string>();
}

// Null if the field is absent or null.
inline const nlohmann::json* find_field(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

inline const nlohmann::json& field(const nlohmann::json& object, const char* key) {
  const nlohmann::json* found = find_field(object, key);
  if (found == nullptr) {
    fail(ErrorKind::BadFile, "tokenizer.json: {} has no '{}'",
         object.contains("type") ? type_name(object) : "a part of it", key);
  }
  return *found;
}

inline bool bool_field(const nlohmann::json& object, const char* key, bool fallback) {
  const nlohmann::json* found = find_field(object, key);
  if (found == nullptr) return fallback;
  if (!found->is_boolean()) fail(ErrorKind::BadFile, "tokenizer.json: '{}' is neither true nor false", key);
  return found->get<bool>();
}

inline std::string string_field(const nlohmann::json& object, const char* key,
                                std::optional<std::string> fallback = std::nullopt) {
  const nlohmann::json* found = find_field(object, key);
  if (found == nullptr && fallback) return *fallback;
  const nlohmann::json& value = field(object, key);
  if (!value.is_string()) fail(ErrorKind::BadFile, "tokenizer.json: '{}' is not a text", key);
  return value.get<std::string>();
}

inline int64_t integer_field(const nlohmann::json& object, const char* key,
                             std::optional<int64_t> fallback = std::nullopt) {
  if (find_field(object, key) == nullptr && fallback) return *fallback;
  const nlohmann::json& value = field(object, key);
  if (!value.is_number_integer()) fail(ErrorKind::BadFile, "tokenizer.json: '{}' is not an integer", key);
  return value.get<int64_t>();
}

inline const nlohmann::json& array_field(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = field(object, key);
  if (!value.is_array()) fail(ErrorKind::BadFile, "tokenizer.json: '{}' is not a list", key);
  return value;
}

inline std::string character_field(const nlohmann::json& object, const char* key,
                                   std::optional<std::string> fallback = std::nullopt) {
  const std::string text = string_field(object, key, std::move(fallback));
  if (text.empty() || utf8_length(text[0]) != text.size()) {
    fail(ErrorKind::BadFile, "tokenizer.json: '{}' is not one character", key);
  }
  return text;
}

}  // namespace millrace
