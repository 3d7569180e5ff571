// Initial values of sums. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

// A fresh zero for every sum. The compiler would copy one zero, which takes a slot of the vector pipes; clearing a
// register is free.
MR_INLINE inline int32x4_t zero_sum() {
  int32x4_t zero;
  asm volatile("movi %0.4s, #0" : "=w"(zero));
  return zero;
}

// The same for sums that start from four integers in memory.
MR_INLINE inline int32x4_t load_sum(const int32_t (&from)[4]) {
  int32x4_t sum;
  asm volatile("ldr %q0, %1" : "=w"(sum) : "m"(from));
  return sum;
}
