#include "models/activations.h"

#include <algorithm>

#include "base/error.h"

namespace millrace {
namespace {

// Rows are aligned for 16-byte loads of a GPU.
int64_t padded(int64_t cols) { return (cols + 7) / 8 * 8; }

// Dry passes compare addresses only, so each buffer gets one far from all others.
std::byte* untouchable_address(size_t index) { return reinterpret_cast<std::byte*>((index + 1) << 40); }

}  // namespace

Activations::Buffer& Activations::find(std::string_view name) {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& b) { return b.name == name; });
  if (found != buffers_.end()) return *found;
  MR_ASSERT(arena_ == nullptr);  // the dry passes request every buffer of a step
  return buffers_.emplace_back(Buffer{name, 0, untouchable_address(buffers_.size())});
}

Matrix Activations::request(std::string_view name, DType dtype, int64_t rows, int64_t cols) {
  Buffer& buffer = find(name);
  const size_t bytes = static_cast<size_t>(rows) * row_bytes(dtype, padded(cols));
  if (arena_ == nullptr) buffer.bytes = std::max(buffer.bytes, bytes);
  MR_ASSERT(bytes <= buffer.bytes);
  return {dtype, rows, cols, padded(cols), buffer.data};
}

size_t Activations::bytes() const {
  size_t total = 0;
  for (const Buffer& b : buffers_) total += Arena::padded(b.bytes);
  return total;
}

void Activations::allocate(Memory& memory) {
  arena_ = std::make_unique<Arena>("activations", bytes(), memory);
  for (Buffer& b : buffers_) b.data = arena_->take(b.bytes);
}

}  // namespace millrace
