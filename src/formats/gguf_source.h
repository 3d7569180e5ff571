// Weights from a GGUF file, or from all parts of a split one.
#pragma once

#include <filesystem>
#include <memory>

#include "formats/weight_source.h"

namespace millrace {

std::unique_ptr<WeightSource> open_gguf(const std::filesystem::path& path);

}  // namespace millrace
