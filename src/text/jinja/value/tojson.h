// The tojson filter of Hugging Face: Python's json.dumps without HTML escaping.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/arguments.h"

namespace millrace::jinja {

struct JsonStyle {
  JsonStyle() = default;
  // (ensure_ascii=False, indent=None, separators=None, sort_keys=False)
  explicit JsonStyle(const Arguments& arguments);

  bool ensure_ascii = false;
  std::optional<std::string> indent;  // indentation per level; empty: everything on one line
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};

std::string to_json_text(const Value& value, const JsonStyle& style);

}  // namespace millrace::jinja
