// Converts JSON input to values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

// Fails for excessive nesting and invalid UTF-8. All texts are content (value/content.h), except those of the members
// of the outermost object that `own` has with the same value: the template's special tokens.
Value value_from_json(const nlohmann::ordered_json& json, const nlohmann::ordered_json& own);

}  // namespace millrace::jinja
