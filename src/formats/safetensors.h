// Reads the header of a safetensors file: eight bytes of length, then JSON with each tensor's dtype, shape and offsets;
// the data follows.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_info.h"

namespace millrace {

// Spans in the result point into `file`. `origin` appears in messages. Throws BadFile.
std::vector<TensorInfo> read_safetensors(std::span<const std::byte> file, const std::string& origin);

}  // namespace millrace
