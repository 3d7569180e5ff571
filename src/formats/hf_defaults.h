// Defaults of transformers for keys that a config.json leaves out, by model_type.
#pragma once

#include <nlohmann/json.hpp>

namespace millrace {

// Adds keys that are absent. A JSON null stays: for most of these keys it has another meaning than absence.
void add_hf_defaults(nlohmann::json& config);

}  // namespace millrace
