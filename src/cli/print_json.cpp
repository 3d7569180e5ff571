#include "cli/print_json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace millrace {

std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void print_json(const nlohmann::json& json) { fmt::print("{}\n", json_text(json)); }

}  // namespace millrace
