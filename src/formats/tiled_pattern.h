// Random weights of one number format that cost nothing to make: a pattern of a few hundred megabytes, far larger than
// any cache, and address ranges of any size that show it over and over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace millrace {

class TiledPattern {
 public:
  // `wanted` is what all ranges together will show: a small model gets memory of its own for every byte.
  TiledPattern(DType dtype, size_t wanted);
  ~TiledPattern();
  TiledPattern(const TiledPattern&) = delete;

  // A range of this many bytes, starting somewhere in the pattern that depends on `which`.
  const std::byte* show(size_t bytes, size_t which);

 private:
  struct Range {
    std::byte* data;
    size_t bytes;
  };
  size_t period_ = 0;  // the shortest length that is whole in blocks and in pages
  size_t size_ = 0;    // of the pattern: a multiple of the period
  int file_ = -1;      // in memory only
  std::vector<Range> ranges_;
};

}  // namespace millrace
