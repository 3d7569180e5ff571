// How large the scores of each attention head get, found once for a model over a text and kept beside the plans.
// Attention with a unified maximum takes its phi from there; what leaves the range is noticed and computed again, so a
// calibration changes speed and never results beyond rounding.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace millrace {

// Runs the tokens through a loaded runner, as many in one sequence as its context holds, and notes what every head's
// scores reach.
Calibration calibrate(Runner& runner, std::span<const int32_t> tokens,
                      const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
