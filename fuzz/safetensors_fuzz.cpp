// Any bytes as a safetensors file: every accepted tensor must lie inside the file.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  try {
    unsigned sum = 0;
    for (const TensorInfo& tensor : read_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz")) {
      for (size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
    }
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const Error&) {
  }
  return 0;
}
