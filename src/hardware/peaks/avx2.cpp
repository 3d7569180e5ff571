#include <immintrin.h>

#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

constexpr int kSums = 12;        // of 16 registers
constexpr int kProductSums = 6;  // GCC uses two registers for each

void vpmaddubsw(int64_t rounds) {
  __m256i sums[kProductSums] = {};
  __m256i a = operand(_mm256_set1_epi8(3)), b = operand(_mm256_set1_epi8(-5)), ones = operand(_mm256_set1_epi16(1));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kProductSums>([&](int i) {
      MR_OPAQUE(a);  // otherwise the compiler computes one product for all sums
      const __m256i products = _mm256_maddubs_epi16(a, b);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(products, ones));
    });
  }
  keep(sums);
}

void vfmadd(int64_t rounds) {
  __m256 sums[kSums] = {};
  __m256 a = operand(_mm256_set1_ps(0.5f)), b = operand(_mm256_set1_ps(0.25f));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) { sums[i] = _mm256_fmadd_ps(a, b, sums[i]); });
  }
  keep(sums);
}

constexpr IsaSet kAvx2 = IsaSet().with(Isa::Avx2);

}  // namespace

constinit const Peak kAvx2Peaks[2] = {
    {"vpmaddubsw", PeakKind::Int8, kAvx2, 2 * 32 * kProductSums, vpmaddubsw},
    {"vfmadd", PeakKind::F32, kAvx2, 2 * 8 * kSums, vfmadd},
};

}  // namespace millrace
