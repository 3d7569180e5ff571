// Hardware and Ceilings as JSON, for --json and for the cached measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "hardware/hardware.h"

namespace millrace {

nlohmann::json describe(const Hardware& hardware);
std::string in_words(const Hardware& hardware);  // "Neoverse-V1 (neon dotprod), 2 threads"
nlohmann::json describe(const Ceilings& ceilings);

// The inverse. Nothing if a field is missing, has another type or is implausible.
std::optional<Ceilings> parse_ceilings(const nlohmann::json& json);

}  // namespace millrace
