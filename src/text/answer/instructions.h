// Tools for models whose chat template does not support them: describes the tools in the system message and writes
// earlier calls and results as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace millrace {

// Returns the messages with a description of `tools` (OpenAI's list; may be empty) at the end of the system message,
// with tool calls in the Hermes format, and with tool results as user messages.
nlohmann::ordered_json instruct_about_tools(nlohmann::ordered_json messages, const nlohmann::ordered_json& tools);

// Appends a paragraph to the system message, which is added if there is none.
nlohmann::ordered_json add_to_system(nlohmann::ordered_json messages, const std::string& text);

}  // namespace millrace
