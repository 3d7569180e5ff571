// Converts a model to a GGUF file in another number format.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "formats/imatrix.h"
#include "formats/quantize_recipe.h"
#include "formats/weight_source.h"

namespace millrace {

struct QuantizeSummary {
  int64_t tensors = 0;
  int64_t bytes_in = 0, bytes_out = 0;  // of the tensors' data
};

// Throws Usage if `out` is a file of the source, or no regular file: a rename puts the result in place, and it would
// replace a device or a link instead of writing to it.
void refuse_to_replace(const std::filesystem::path& out, const WeightSource& source);

// Copies metadata, and tensors that the recipe leaves unchanged. `progress` receives elements done and elements in
// total. With `imatrix`, errors count by the importance of their columns. Throws Unsupported if the source does not use
// GGUF names, BadFile for non-finite values.
QuantizeSummary quantize_model(const WeightSource& source, const std::filesystem::path& out,
                               const QuantizeRecipe& recipe, ThreadPool& threads,
                               FunctionRef<void(int64_t done, int64_t total)> progress,
                               const Imatrix* imatrix = nullptr);

}  // namespace millrace
