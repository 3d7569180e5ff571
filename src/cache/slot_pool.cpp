#include "cache/slot_pool.h"

namespace millrace {

SlotPool::SlotPool(int32_t slots) : size_(slots) {
  free_.reserve(static_cast<size_t>(slots));
  for (int32_t slot = slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

Slot SlotPool::take() {
  if (free_.empty()) return {};
  Slot slot(*this, free_.back());
  free_.pop_back();
  return slot;
}

void Slot::reset() {
  if (pool_ != nullptr) pool_->free_.push_back(id_);
  pool_ = nullptr;
  id_ = -1;
}

}  // namespace millrace
