// The machine as JSON, for --json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "hardware/hardware.h"

namespace millrace {

nlohmann::json describe(const Hardware& hardware);

}  // namespace millrace
