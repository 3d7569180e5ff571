// The pages of one sequence, in order: position p lives in pages()[p / block_size].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_pool.h"

namespace millrace {

class BlockTable {
 public:
  BlockTable(BlockPool& pool, int block_size, int32_t longest);
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&&) = delete;

  // Makes room for `tokens` positions. False, with nothing changed, if the pool has too few pages.
  bool reserve(int32_t tokens);
  void truncate(int32_t tokens);  // gives back the pages past this many positions
  void clear() { truncate(0); }
  void swap(BlockTable& other) { pages_.swap(other.pages_); }  // of the same pool, and as long at most
  void share(int32_t page);                                    // appends a page that another holder keeps as well
  void replace(size_t index, int32_t by);                      // gives this page back and holds `by` instead
  std::span<const int32_t> pages() const { return pages_; }
  int32_t pages_for(int32_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  int32_t capacity() const { return static_cast<int32_t>(pages_.size()) * block_size_; }  // positions

 private:
  BlockPool& pool_;
  int block_size_;
  std::vector<int32_t> pages_;  // has the capacity for the longest sequence: it never moves while a step reads it
};

}  // namespace millrace
