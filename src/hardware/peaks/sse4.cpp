#include <immintrin.h>

#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

constexpr int kSums = 6;  // GCC uses two of the 16 registers for each

void pmaddubsw(int64_t rounds) {
  __m128i sums[kSums] = {};
  __m128i a = operand(_mm_set1_epi8(3)), b = operand(_mm_set1_epi8(-5)), ones = operand(_mm_set1_epi16(1));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) {
      MR_OPAQUE(a);  // otherwise the compiler computes one product for all sums
      const __m128i products = _mm_maddubs_epi16(a, b);
      sums[i] = _mm_add_epi32(sums[i], _mm_madd_epi16(products, ones));
    });
  }
  keep(sums);
}

void mulps_addps(int64_t rounds) {
  __m128 sums[kSums] = {};
  __m128 a = operand(_mm_set1_ps(0.5f)), b = operand(_mm_set1_ps(0.25f));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) {
      MR_OPAQUE(a);  // otherwise the compiler computes one product for all sums
      const __m128 product = _mm_mul_ps(a, b);
      sums[i] = _mm_add_ps(sums[i], product);
    });
  }
  keep(sums);
}

constexpr IsaSet kSse4 = IsaSet().with(Isa::Sse4);

}  // namespace

constinit const Peak kSse4Peaks[2] = {
    {"pmaddubsw", PeakKind::Int8, kSse4, 2 * 16 * kSums, pmaddubsw},
    {"mulps", PeakKind::F32, kSse4, 2 * 4 * kSums, mulps_addps},
};

}  // namespace millrace
