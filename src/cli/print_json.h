// One JSON object on stdout. Bytes that are not UTF-8 become replacement characters.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace millrace {

void print_json(const nlohmann::json& json);

}  // namespace millrace
