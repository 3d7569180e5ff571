// Loops that the kernels share. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

// Calls visit(first, std::integral_constant<int, count>()) over [begin, end): tiles of `most`, then one smaller tile.
template <int most, class Visit>
MR_INLINE inline void for_tiles(int64_t begin, int64_t end, Visit visit) {
  for (; begin + most <= end; begin += most) visit(begin, std::integral_constant<int, most>());
  unrolled<most - 1>([&](auto i) MR_INLINE {
    if (end - begin == i + 1) visit(begin, std::integral_constant<int, i + 1>());
  });
}

// Prefetch distance into the L2 cache.
constexpr int64_t kPrefetchBytes = 2048;

template <class Block>
MR_INLINE inline void prefetch_after(const Block* block) {
  const auto* bytes = reinterpret_cast<const char*>(block) + kPrefetchBytes;
  unrolled<(sizeof(Block) + 63) / 64>([&](auto line) MR_INLINE { __builtin_prefetch(bytes + 64 * line, 0, 2); });
}
