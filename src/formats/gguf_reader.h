// Reads the header of a GGUF file (version 2 or 3, little-endian): metadata and the tensor table. Copies nothing, and
// checks every offset and count against the file's size before use.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf_metadata.h"
#include "formats/tensor_info.h"

namespace millrace {

struct GgufContents {
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;
};

// Views in the result point into `file`. `origin` appears in messages. Throws BadFile or Unsupported.
GgufContents read_gguf(std::span<const std::byte> file, const std::string& origin);

}  // namespace millrace
