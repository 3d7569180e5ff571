#include "tensor/arena.h"

#include "base/error.h"

namespace millrace {

Arena::Arena(std::string purpose, size_t bytes, Memory& memory)
    : purpose_(std::move(purpose)), memory_(memory), capacity_(padded(bytes)) {
  if (capacity_ > 0) data_ = memory_.allocate(purpose_, capacity_);
}

Arena::~Arena() {
  if (data_ != nullptr) memory_.release(data_, capacity_);
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
