// Loops shared by the kernels. Included inside a target region.
#pragma once

#include "kernels/linear/arm/unroll-inl.h"

// visit(first, std::integral_constant<int, count>()) over [begin, end): tiles of `most`, then one of the rest.
template <int most, class Visit>
MR_INLINE inline void for_tiles(int64_t begin, int64_t end, Visit visit) {
  for (; begin + most <= end; begin += most) visit(begin, std::integral_constant<int, most>());
  unrolled<most - 1>([&](auto i) MR_INLINE {
    if (end - begin == i + 1) visit(begin, std::integral_constant<int, i + 1>());
  });
}

// Weights are read once: no reason to keep them in the caches that x lives in.
constexpr int64_t kPrefetchBytes = 2048;

template <class Block>
MR_INLINE inline void prefetch_after(const Block* block) {
  const auto* bytes = reinterpret_cast<const char*>(block) + kPrefetchBytes;
  unrolled<(sizeof(Block) + 63) / 64>([&](auto line) MR_INLINE { __builtin_prefetch(bytes + 64 * line, 0, 2); });
}

// A fresh zero for every sum. The compiler would rather copy one zero around, which takes a slot of the vector pipes;
// clearing a register is free.
MR_INLINE inline int32x4_t zero_sum() {
  int32x4_t zero;
  asm volatile("movi %0.4s, #0" : "=w"(zero));
  return zero;
}
