// Random weights in the shape of a known model, for benchmarks: "synthetic:SHAPE[:DTYPE]", and in that of EAGLE-3 heads
// for such a model: "synthetic:eagle3-SHAPE[:DTYPE]".
#pragma once

#include <memory>
#include <string>

#include "formats/weight_source.h"

namespace millrace {

inline constexpr std::string_view kSyntheticPrefix = "synthetic:";

// DTYPE is a dtype of tensor/dtype.h or a recipe of quantize_recipe.h; default F16.
std::unique_ptr<WeightSource> open_synthetic(const std::string& model);

}  // namespace millrace
