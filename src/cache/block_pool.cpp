#include "cache/block_pool.h"

#include "base/error.h"

namespace millrace {

BlockPool::BlockPool(int32_t blocks) : references_(static_cast<size_t>(blocks), 0) {
  free_.reserve(references_.size());
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

std::optional<int32_t> BlockPool::take() {
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockPool::share(int32_t block) {
  MR_ASSERT(references(block) > 0);
  ++references_[static_cast<size_t>(block)];
}

void BlockPool::give_back(int32_t block) {
  MR_ASSERT(references(block) > 0);
  if (--references_[static_cast<size_t>(block)] == 0) free_.push_back(block);
}

}  // namespace millrace
