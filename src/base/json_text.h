// JSON from text and to text. nlohmann's parser and writer are slow templates; instantiating them here once saves each
// user seconds of compile time.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace millrace {

// Returns a discarded value if the text is not JSON or is nested more than a thousand levels deep.
nlohmann::json read_json(std::string_view text);
nlohmann::json read_json_with_comments(std::string_view text);
nlohmann::ordered_json read_ordered_json(std::string_view text);

// One line unless `indent` is given. Bytes that are not UTF-8 become replacement characters.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

// Appends `text` as a JSON string. Text without characters to escape builds no JSON value.
void append_json_string(std::string_view text, std::string& to);

}  // namespace millrace
