// A model's GGUF file, written again in another number format.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "formats/quantize_recipe.h"
#include "formats/weight_source.h"

namespace millrace {

struct QuantizeSummary {
  int64_t tensors = 0;
  int64_t bytes_in = 0, bytes_out = 0;  // of the tensors
};

// Metadata is carried over; tensors that the recipe leaves alone are copied. `progress` is told the elements done and
// the elements in all. Throws Unsupported when the source does not speak GGUF's names, BadFile on numbers that are not
// finite.
QuantizeSummary quantize_model(const WeightSource& source, const std::filesystem::path& out,
                               const QuantizeRecipe& recipe, ThreadPool& threads,
                               FunctionRef<void(int64_t done, int64_t total)> progress);

}  // namespace millrace
