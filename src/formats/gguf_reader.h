// Reads the front of a GGUF file (version 2 or 3, little-endian): metadata and the table of tensors. Nothing is copied;
// everything is checked against the bytes that are there before it is believed.
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

// Views in the result point into `file`. `origin` is for messages. Throws BadFile or Unsupported.
GgufContents read_gguf(std::span<const std::byte> file, const std::string& origin);

}  // namespace millrace
