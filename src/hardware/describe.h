// The machine as JSON: for --json, and for the file that keeps what was measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "hardware/hardware.h"

namespace millrace {

nlohmann::json describe(const Hardware& hardware);
std::string in_words(const Hardware& hardware);  // "Neoverse-V1 (neon dotprod), 2 threads"
nlohmann::json describe(const Ceilings& ceilings);

// The reverse; nothing where a field is missing, of another type or out of all proportion.
std::optional<Ceilings> parse_ceilings(const nlohmann::json& json);

}  // namespace millrace
