#include "engine/fingerprint.h"

#include <algorithm>

namespace millrace {
namespace {

// FNV-1a, only used to tell models apart.
class Fingerprint {
 public:
  void add(const void* data, size_t bytes) {
    const auto* byte = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ byte[i]) * 0x100000001b3;
  }
  void add(const std::string& text) { add(text.data(), text.size() + 1); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

uint64_t fingerprint(const WeightSource& source) {
  constexpr size_t kSamples = 32, kBytes = 256;
  Fingerprint print;
  const auto tensors = source.tensors();
  const size_t every = std::max<size_t>(1, tensors.size() / kSamples);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& t = tensors[i];
    print.add(t.name);
    print.add(t.dtype_name);
    print.add(t.shape.data(), t.shape.size() * sizeof(t.shape[0]));
    if (i % every != 0 || t.data == nullptr) continue;
    const size_t count = std::min(kBytes, t.bytes);
    print.add(t.data + (t.bytes - count) / 2, count);
  }
  return print.value();
}

}  // namespace millrace
