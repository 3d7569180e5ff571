// Loops that must be unrolled completely, because their arrays are registers. Included inside a target region.
#pragma once

#define MR_INLINE __attribute__((always_inline))

// Calls visit(std::integral_constant<int, i>()) for i in 0..n-1.
template <int n, class Visit>
MR_INLINE inline void unrolled(Visit visit) {
  [&]<int... i>(std::integer_sequence<int, i...>) MR_INLINE { (visit(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, n>());
}
