// Any bytes as a safetensors file: every accepted tensor must lie inside the file, and tensors that are computed from
// others must stay inside them.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "formats/folder_quantization.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  try {
    unsigned sum = 0;
    const auto tensors = read_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    for (const TensorInfo& tensor : tensors) {
      for (size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
    }
    for (const DerivedTensor& tensor : quantized_tensors(tensors, nullptr, "fuzz")) {
      std::vector<std::byte> out(tensor.info.bytes);
      const int64_t cols = tensor.info.shape.back();
      if (!out.empty()) tensor.write(0, *element_count(tensor.info.shape) / cols, out.data());
      for (const std::byte byte : out) sum += static_cast<unsigned>(byte);
    }
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const Error&) {
  }
  return 0;
}
