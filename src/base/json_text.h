// JSON from text and to text. The parser and the writer are templates: compiled here once, they save every file that
// uses them seconds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace millrace {

// Discarded (no object, no array, nothing) where the text is not JSON, or JSON nested a thousand deep.
nlohmann::json read_json(std::string_view text);
nlohmann::json read_json_with_comments(std::string_view text);
nlohmann::ordered_json read_ordered_json(std::string_view text);

// On one line unless there is an indent. Bytes that are no UTF-8 become replacement characters.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

// Appends a text as a JSON string, without building a JSON value where it has nothing to escape.
void append_json_string(std::string_view text, std::string& to);

}  // namespace millrace
