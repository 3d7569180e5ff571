// Hands out the pages of the state cache. Pages have reference counts: sequences with a common prefix share pages.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace millrace {

class BlockPool {
 public:
  explicit BlockPool(int32_t blocks);

  std::optional<int32_t> take();  // one reference; nothing when the pool is empty
  void share(int32_t block);      // one more reference
  void give_back(int32_t block);  // one reference less; a page without references is free
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t size() const { return static_cast<int32_t>(references_.size()); }
  int32_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }

 private:
  std::vector<int32_t> free_;  // used as a stack: the page freed last is the warmest
  std::vector<int32_t> references_;
};

}  // namespace millrace
