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

  // Makes room for `tokens` positions; false, and nothing changed, when the pool cannot give as many pages.
  bool reserve(int32_t tokens);
  void truncate(int32_t tokens);  // gives back the pages past this many positions
  void clear() { truncate(0); }
  void share(int32_t page);                // appends a page that others hold too
  void replace(size_t index, int32_t by);  // holds another page in its place
  std::span<const int32_t> pages() const { return pages_; }
  int32_t pages_for(int32_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  int32_t capacity() const { return static_cast<int32_t>(pages_.size()) * block_size_; }  // positions

 private:
  BlockPool& pool_;
  int block_size_;
  std::vector<int32_t> pages_;  // reserved for the longest sequence: it never moves under a running step
};

}  // namespace millrace
