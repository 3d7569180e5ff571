// Loops of multiply-adds on registers: a core's peak rate for each number format and ISA.
//
// Each file is compiled for its own instruction set. It must not emit inline functions that other files share: the
// linker keeps one copy, which this machine may be unable to run. So it exports plain arrays.
#pragma once

#include <cstdint>
#include <utility>

#include "hardware/isa.h"

namespace millrace {

enum class PeakKind : uint8_t { Int8, Bf16, F16, F32 };

struct Peak {
  const char* instruction;  // the measured instruction
  PeakKind kind;
  IsaSet needs;
  double ops_per_round;  // a multiply-add counts as two
  void (*run)(int64_t rounds);
};

extern const Peak kScalarPeaks[2];
#if defined(__aarch64__)
extern const Peak kNeonPeaks[2], kDotprodPeaks[2], kI8mmPeaks[2];
#elif defined(__x86_64__)
extern const Peak kSse4Peaks[2], kAvx2Peaks[2], kAvx512Peaks[3], kAmxPeaks[2];
#endif

// Hides a value from the optimizer, so that it cannot simplify the surrounding loop.
#if defined(__aarch64__)
#define MR_OPAQUE(value) asm volatile("" : "+w"(value))
#elif defined(__AVX512F__)
#define MR_OPAQUE(value) asm volatile("" : "+v"(value))
#else
#define MR_OPAQUE(value) asm volatile("" : "+x"(value))
#endif

// Calls step(i) for i in [0, n) with constant indices, so that arrays of sums stay in registers.
template <int n, class Step>
[[gnu::always_inline]] inline void unrolled(Step step) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) { (step(i), ...); }
  (std::make_integer_sequence<int, n>());
}

// Operands come from memory, as in kernels: Neoverse-V1 runs at half its rate on operands made in registers.
template <class Vector>
[[gnu::always_inline]] inline Vector operand(Vector value) {
  asm volatile("" : "+m"(value));
  return value;
}

// Makes the sums distinct for the optimizer, which would compute equal ones once.
template <class Vector, int n>
[[gnu::always_inline]] inline void make_distinct(Vector (&sums)[n]) {
  unrolled<n>([&](int i) { MR_OPAQUE(sums[i]); });
}

// Marks the sums as used, so that the loop is not optimized away.
template <class Vector, int n>
[[gnu::always_inline]] inline void keep(const Vector (&sums)[n]) {
  Vector all = sums[0];
  unrolled<n - 1>([&](int i) { all += sums[i + 1]; });
  MR_OPAQUE(all);
}

}  // namespace millrace
