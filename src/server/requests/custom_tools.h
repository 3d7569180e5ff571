// Custom tools take free text instead of JSON. The model sees a function with one string, `input`; calls are translated
// back.
#pragma once

#include <string>

#include "server/requests/schema.h"

namespace millrace {

// The format of a custom tool: text, or a regular expression. `nested`: /v1/chat/completions puts a grammar's members
// into an object of their own.
Schema custom_format_schema(bool nested);

// {name, description, format} as the `function` of a chat tool. `param` names the tool in errors. Throws ApiError.
Json function_of_custom(const Json& custom, const std::string& param);

std::string custom_arguments(const Json& input);         // of a call in the history
std::string custom_input(const std::string& arguments);  // of a generated call, which max_tokens may have cut

}  // namespace millrace
