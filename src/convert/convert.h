// Converts a Hugging Face folder to a GGUF file that llama.cpp and this engine load with the same results.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "formats/quantize_model.h"
#include "formats/quantize_recipe.h"

namespace millrace {

struct ConvertOptions {
  std::filesystem::path out;
  const QuantizeRecipe* recipe = nullptr;  // null: the format of most of the folder's weights; MXFP4 stays as it is
  std::filesystem::path adapter = {};      // a low-rank adapter to add to the weights; empty: none
};

// The file that `millrace convert` writes without -o: FOLDER/NAME-TYPE.gguf.
std::filesystem::path converted_name(const WeightSource& source, const QuantizeRecipe& recipe);

const QuantizeRecipe& recipe_of_folder(const WeightSource& source);

// One tensor is in memory at a time, if it must be computed as a whole; of others some rows. Throws Unsupported, with
// the name, for architectures and settings that GGUF cannot express. A file that is not complete keeps another name.
QuantizeSummary convert_folder(const WeightSource& source, const ConvertOptions& options, ThreadPool& threads,
                               FunctionRef<void(int64_t done, int64_t total)> progress);

}  // namespace millrace
