// Weights as the ops take them: vectors and linear layers in the device's memory.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/linear/linear.h"

namespace millrace {

// A vector of f32. An architecture declares it, Weights::pack() fills it in. A dry pass only asks whether there is one.
struct Vector {
  static constexpr float kNotLoaded = std::numeric_limits<float>::quiet_NaN();
  const float* data = &kNotLoaded;
  int64_t n = 0;
};

// One or more weight matrices side by side in the output: q, k and v of different formats stay apart.
struct Linear {
  struct Part {
    LinearWeights weights;
    // (rows, kernel) for each bucket of rows, ascending. Dry passes fill it in before the first step.
    mutable std::vector<std::pair<int64_t, const LinearKernel*>> plan;
    // Batch-invariant plans. Fewer rows than least_rows are computed as that many; the buffers have room for them. With
    // tile_rows > 0 all rows are computed in whole tiles of that many.
    mutable int64_t least_rows = 1, tile_rows = 0;
  };
  int64_t n = 0, k = 0;
  bool gated = false;  // gate and up in one part: the layer gives silu(gate) * up, [rows, n / 2]
  std::vector<Part> parts;
  const Vector* bias = nullptr;  // [n] or null
};

}  // namespace millrace
