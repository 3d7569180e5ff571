// One allocation from the memory plan, handed out front to back and freed as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/matrix.h"
#include "tensor/memory.h"

namespace millrace {

class Arena {
 public:
  Arena(std::string purpose, size_t bytes, Memory& memory = host_memory());  // throws OutOfMemory
  ~Arena();
  Arena(const Arena&) = delete;

  std::byte* take(size_t bytes);  // aligned; taking more than planned is a bug (MR_ASSERT)
  Matrix matrix(DType dtype, int64_t rows, int64_t cols);
  size_t capacity() const { return capacity_; }
  size_t used() const { return used_; }
  Memory& memory() const { return memory_; }

  // Bytes that take() consumes for a request of this size, for planning. GPUs do bulk copies from multiples of 128; a
  // CPU cache line is 64 bytes.
  static constexpr size_t kAlignment = 128;
  static size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  std::string purpose_;
  Memory& memory_;
  std::byte* data_ = nullptr;
  size_t capacity_, used_ = 0;
};

}  // namespace millrace
