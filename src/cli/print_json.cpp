#include "cli/print_json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace millrace {

void print_json(const nlohmann::json& json) { fmt::print("{}\n", json_text(json)); }

}  // namespace millrace
