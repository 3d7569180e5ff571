// Any bytes as a GGUF file: everything accepted must be safe to use.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "formats/config.h"
#include "formats/gguf_reader.h"

namespace millrace {
namespace {

void use(const GgufValue& value) {
  (void)value.integer();
  (void)value.number();
  (void)value.boolean();
  (void)value.string();
  if (!value.is_array()) return;
  if (const auto strings = value.strings()) {
    for (const auto text : *strings) (void)std::string(text);
  }
  (void)value.integers();
  (void)value.numbers();
  for (const GgufValue& element : value.elements()) use(element);
}

void use(const TensorInfo& tensor) {
  unsigned sum = 0;
  for (size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
  volatile unsigned sink = sum;
  (void)sink;
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  try {
    const GgufContents contents = read_gguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
    for (const auto& entry : contents.metadata.entries()) use(entry.value);
    for (const TensorInfo& tensor : contents.tensors) use(tensor);
    const Config config = Config::from_gguf(contents.metadata);
    (void)config.optional_integer({.gguf = "block_count"});
    (void)config.optional_number({.gguf = "rope.freq_base"});
    (void)config.optional_array<int64_t>({.gguf = "attention.head_count_kv"});
  } catch (const Error&) {
  }
  return 0;
}
