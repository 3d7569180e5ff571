#include "cache/block_table.h"

#include "base/error.h"

namespace millrace {

BlockTable::BlockTable(BlockPool& pool, int block_size, int32_t longest) : pool_(pool), block_size_(block_size) {
  pages_.reserve(static_cast<size_t>(pages_for(longest)));
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_), block_size_(other.block_size_), pages_(std::move(other.pages_)) {
  other.pages_.clear();
}

bool BlockTable::reserve(int32_t tokens) {
  const auto wanted = pages_for(tokens) - static_cast<int32_t>(pages_.size());
  if (wanted > pool_.free()) return false;
  for (int32_t i = 0; i < wanted; ++i) pages_.push_back(*pool_.take());
  return true;
}

void BlockTable::truncate(int32_t tokens) {
  while (static_cast<int32_t>(pages_.size()) > pages_for(tokens)) {
    pool_.give_back(pages_.back());
    pages_.pop_back();
  }
}

void BlockTable::share(int32_t page) {
  pool_.share(page);
  pages_.push_back(page);
}

void BlockTable::replace(size_t index, int32_t by) {
  pool_.share(by);
  pool_.give_back(pages_[index]);
  pages_[index] = by;
}

}  // namespace millrace
