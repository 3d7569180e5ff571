// Memory from the plan: one allocation, handed out front to back, freed as a whole.
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

  std::byte* take(size_t bytes);  // aligned; taking more than was planned is our own mistake
  Matrix matrix(DType dtype, int64_t rows, int64_t cols);
  size_t capacity() const { return capacity_; }
  size_t used() const { return used_; }
  Memory& memory() const { return memory_; }

  // What take() consumes for a request of this size: for planning. A cache line of the CPU is 64 bytes; GPUs copy in
  // bulk from addresses that are multiples of 128.
  static constexpr size_t kAlignment = 128;
  static size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  std::string purpose_;
  Memory& memory_;
  std::byte* data_ = nullptr;
  size_t capacity_, used_ = 0;
};

}  // namespace millrace
