// Reads single keywords of a schema.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/string_formats.h"

namespace millrace {

// For error messages: names can be as long as the schema.
inline std::string shortened(const std::string& text) {
  size_t size = 160;
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;  // whole characters
  return text.substr(0, size) + "...";
}

// A keyword with a count; `missing` if it is absent.
inline int64_t count_of(const JsonSchema& schema, const char* keyword, int64_t missing) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return missing;
  const bool whole = found->is_number() && *found >= 0 && *found < 1e12 &&
                     found->get<double>() == static_cast<double>(found->get<int64_t>());
  if (!whole) fail(ErrorKind::Usage, "the schema's {} is not a count", keyword);
  constexpr int64_t kMost = 100000;
  const auto count = found->get<int64_t>();
  // No answer is longer than kMost, so a larger upper bound is no bound.
  if (count > kMost && std::string_view(keyword).starts_with("max")) return -1;
  if (count > kMost) fail(ErrorKind::Usage, "the schema's {} is larger than {}", keyword, kMost);
  return count;
}

// A keyword with a text, or with several after a merge of schemas.
inline std::vector<std::string> texts_of(const JsonSchema& schema, const char* keyword) {
  std::vector<std::string> texts;
  const auto found = schema.find(keyword);
  if (found == schema.end()) return texts;
  for (const JsonSchema& one : found->is_array() ? *found : JsonSchema::array({*found})) {
    if (!one.is_string()) fail(ErrorKind::Usage, "the schema's {} is not a string", keyword);
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

inline std::vector<std::string> excepted_texts(const JsonSchema& schema) {
  std::vector<std::string> texts;
  const auto except = schema.find("$except");
  if (except == schema.end()) return texts;
  for (const JsonSchema& one : *except) {
    if (one.is_string()) texts.push_back(one.get<std::string>());
  }
  return texts;
}

// Formats that have a pattern; validators ignore others.
inline std::vector<std::string> known_formats(const JsonSchema& schema) {
  std::vector<std::string> formats = texts_of(schema, "format");
  std::erase_if(formats, [](const std::string& format) { return string_format_regex(format, {}).empty(); });
  return formats;
}

inline void refuse_unsupported(const JsonSchema& schema) {
  for (const char* keyword : {"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end() || *found == true) continue;
    fail(ErrorKind::Usage, "the schema uses \"{}\", which cannot be enforced", keyword);
  }
}

}  // namespace millrace
