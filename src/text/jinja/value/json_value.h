// Converts JSON input to values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/value/value.h"

namespace millrace::jinja {

// Fails for excessive nesting and invalid UTF-8.
Value value_from_json(const nlohmann::ordered_json& json);

}  // namespace millrace::jinja
