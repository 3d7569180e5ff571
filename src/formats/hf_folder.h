// Weights from a Hugging Face folder: config.json, *.safetensors (one file, or shards with an index) and text files. A
// folder without weights or config.json still opens, for its tokenizer.
#pragma once

#include <filesystem>
#include <memory>

#include "formats/weight_source.h"

namespace millrace {

std::unique_ptr<WeightSource> open_hf_folder(const std::filesystem::path& folder);

}  // namespace millrace
