// Tools for models whose chat template knows none: told in the system message, and earlier calls and their results
// written out as text.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace millrace {

// Returns the messages with `tools` (OpenAI's list; may be empty) described at the end of the system message, tool
// calls of the assistant written as the Hermes format has them, and results of tools as messages of the user.
nlohmann::ordered_json instruct_about_tools(nlohmann::ordered_json messages, const nlohmann::ordered_json& tools);

}  // namespace millrace
