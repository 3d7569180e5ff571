// Loops of nothing but multiply-adds on registers: how fast a core can count, for each kind of number and ISA.
//
// One file per instruction set, since each is compiled for it. Such a file must not emit inline functions that others
// share (the linker would keep one of them, perhaps the one this machine cannot run), so it exports plain arrays.
#pragma once

#include <cstdint>
#include <utility>

#include "hardware/isa.h"

namespace millrace {

enum class PeakKind : uint8_t { Int8, Bf16, F16, F32 };

struct Peak {
  const char* instruction;  // that does the work
  PeakKind kind;
  IsaSet needs;
  double ops_per_round;  // multiply and add count as two
  void (*run)(int64_t rounds);
};

extern const Peak kScalarPeaks[2];
#if defined(__aarch64__)
extern const Peak kNeonPeaks[2], kDotprodPeaks[2], kI8mmPeaks[2];
#elif defined(__x86_64__)
extern const Peak kSse4Peaks[2], kAvx2Peaks[2], kAvx512Peaks[3], kAmxPeaks[2];
#endif

// Makes the compiler believe that a value changes here, so that it cannot simplify the loop around it.
#if defined(__aarch64__)
#define MR_OPAQUE(value) asm volatile("" : "+w"(value))
#elif defined(__AVX512F__)
#define MR_OPAQUE(value) asm volatile("" : "+v"(value))
#else
#define MR_OPAQUE(value) asm volatile("" : "+x"(value))
#endif

// Calls step(i) for i in [0, n) with the index known to the compiler: the sums must stay in registers.
template <int n, class Step>
[[gnu::always_inline]] inline void unrolled(Step step) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) { (step(i), ...); }
  (std::make_integer_sequence<int, n>());
}

// Operands come from memory, as they do in kernels: Neoverse-V1 runs at half its rate when they were made in registers.
template <class Vector>
[[gnu::always_inline]] inline Vector operand(Vector value) {
  asm volatile("" : "+m"(value));
  return value;
}

// Equal sums would be computed once; after this the compiler cannot know that they are equal.
template <class Vector, int n>
[[gnu::always_inline]] inline void make_distinct(Vector (&sums)[n]) {
  unrolled<n>([&](int i) { MR_OPAQUE(sums[i]); });
}

// Makes the compiler believe that the sums are needed.
template <class Vector, int n>
[[gnu::always_inline]] inline void keep(const Vector (&sums)[n]) {
  Vector all = sums[0];
  unrolled<n - 1>([&](int i) { all += sums[i + 1]; });
  MR_OPAQUE(all);
}

}  // namespace millrace
