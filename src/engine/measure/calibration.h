// Measures the range of attention scores of each head over a text. Attention with a unified maximum takes its phi from
// this range. Kernels check each score and recompute rows outside the range, so a calibration changes speed, and
// results only within rounding.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/runner.h"

namespace millrace {

// Runs the tokens through a loaded runner, in sequences as long as its context allows, and records the range of every
// head's scores.
Calibration calibrate(Runner& runner, std::span<const int32_t> tokens,
                      const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace millrace
