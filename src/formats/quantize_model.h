// Converts a model to a GGUF file in another number format.
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
  int64_t bytes_in = 0, bytes_out = 0;  // of the tensors' data
};

// Copies metadata, and tensors that the recipe leaves unchanged. `progress` receives elements done and elements in
// total. Throws Unsupported if the source does not use GGUF names, BadFile for non-finite values.
QuantizeSummary quantize_model(const WeightSource& source, const std::filesystem::path& out,
                               const QuantizeRecipe& recipe, ThreadPool& threads,
                               FunctionRef<void(int64_t done, int64_t total)> progress);

}  // namespace millrace
