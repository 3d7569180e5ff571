#include "tensor/arena.h"

#include <sys/mman.h>

#include "base/error.h"

namespace millrace {

Arena::Arena(std::string purpose, size_t bytes) : purpose_(std::move(purpose)), capacity_(padded(bytes)) {
  if (capacity_ == 0) return;
  void* mapped = ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    fail(ErrorKind::OutOfMemory, "cannot reserve {:.1f} MB for {}", double(bytes) / 1e6, purpose_);
  data_ = static_cast<std::byte*>(mapped);
  ::madvise(data_, capacity_, MADV_HUGEPAGE);  // scattered KV rows gain from it, nothing loses
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, capacity_);
}

std::byte* Arena::take(size_t bytes) {
  MR_ASSERT(padded(bytes) <= capacity_ - used_);
  std::byte* taken = data_ + used_;
  used_ += padded(bytes);
  return taken;
}

Matrix Arena::matrix(DType dtype, int64_t rows, int64_t cols) {
  return {dtype, rows, cols, cols, take(static_cast<size_t>(rows) * row_bytes(dtype, cols))};
}

}  // namespace millrace
