// Memory from the plan: one mapping, handed out front to back, freed as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/matrix.h"

namespace millrace {

class Arena {
 public:
  Arena(std::string purpose, size_t bytes);  // throws OutOfMemory
  ~Arena();
  Arena(const Arena&) = delete;

  std::byte* take(size_t bytes);  // 64-byte aligned; taking more than was planned is our own mistake
  Matrix matrix(DType dtype, int64_t rows, int64_t cols);
  size_t capacity() const { return capacity_; }
  size_t used() const { return used_; }

  // What take() consumes for a request of this size: for planning.
  static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  std::string purpose_;
  std::byte* data_ = nullptr;
  size_t capacity_, used_ = 0;
};

}  // namespace millrace
