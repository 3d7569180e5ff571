// JSON from outside as a template's values.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/value.h"

namespace millrace::jinja {

// Fails for what no template could use: nesting without end, text that is no UTF-8.
Value value_from_json(const nlohmann::ordered_json& json);

}  // namespace millrace::jinja
