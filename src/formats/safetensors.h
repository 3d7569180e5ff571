// Reads the header of a safetensors file: eight bytes of length, JSON that names each tensor's dtype, shape and place,
// then the data.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_info.h"

namespace millrace {

// Spans in the result point into `file`. `origin` is for messages. Throws BadFile.
std::vector<TensorInfo> read_safetensors(std::span<const std::byte> file, const std::string& origin);

}  // namespace millrace
