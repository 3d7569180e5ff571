#include "cache/state_layout.h"

#include "base/error.h"
#include "tensor/arena.h"

namespace millrace {

int StateLayout::paged(const PagedShape& shape) {
  MR_ASSERT(!shape.latent || shape.value_dim <= shape.key_dim);
  paged_.push_back(shape);
  return static_cast<int>(paged_.size()) - 1;
}

int StateLayout::slot(const SlotShape& shape) {
  slots_.push_back(shape);
  return static_cast<int>(slots_.size()) - 1;
}

size_t StateLayout::bytes_per_token(DType dtype) const {
  size_t total = 0;
  for (const auto& shape : paged_) {
    const size_t key = row_bytes(dtype, shape.key_dim), value = shape.latent ? 0 : row_bytes(dtype, shape.value_dim);
    total += static_cast<size_t>(shape.kv_heads) * (key + value);
  }
  return total;
}

size_t StateLayout::bytes_per_slot() const { return slot_offset(static_cast<int>(slots_.size())); }

// Each state is aligned as an arena's allocations are.
size_t StateLayout::slot_offset(int i) const {
  size_t offset = 0;
  for (const auto& shape : std::span(slots_).first(static_cast<size_t>(i)))
    offset += Arena::padded(row_bytes(shape.dtype, shape.elements));
  return offset;
}

}  // namespace millrace
