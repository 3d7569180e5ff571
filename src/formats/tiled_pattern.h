// Random weights of one number format at almost no cost: a pattern of a few hundred MB, far larger than any cache,
// mapped repeatedly into address ranges of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace millrace {

class TiledPattern {
 public:
  // `wanted` is the total size of all ranges. A small model gets distinct memory for every byte.
  TiledPattern(DType dtype, size_t wanted);
  ~TiledPattern();
  TiledPattern(const TiledPattern&) = delete;

  // A range of this many bytes; `which` determines where in the pattern it starts.
  const std::byte* show(size_t bytes, size_t which);

 private:
  struct Range {
    std::byte* data;
    size_t bytes;
  };
  size_t period_ = 0;  // the least common multiple of block and page size
  size_t size_ = 0;    // a multiple of the period
  int file_ = -1;      // memfd
  std::vector<Range> ranges_;
};

}  // namespace millrace
