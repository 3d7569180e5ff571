#include <immintrin.h>

#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

constexpr int kSums = 16;

void vpmaddubsw(int64_t rounds) {
  __m512i sums[kSums] = {};
  __m512i a = operand(_mm512_set1_epi8(3)), b = operand(_mm512_set1_epi8(-5)), ones = operand(_mm512_set1_epi16(1));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) {
      MR_OPAQUE(a);  // otherwise the compiler computes one product for all sums
      const __m512i products = _mm512_maddubs_epi16(a, b);
      sums[i] = _mm512_add_epi32(sums[i], _mm512_madd_epi16(products, ones));
    });
  }
  keep(sums);
}

void vpdpbusd(int64_t rounds) {
  __m512i sums[kSums] = {};
  __m512i a = operand(_mm512_set1_epi8(3)), b = operand(_mm512_set1_epi8(-5));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) { sums[i] = _mm512_dpbusd_epi32(sums[i], a, b); });
  }
  keep(sums);
}

void vfmadd(int64_t rounds) {
  __m512 sums[kSums] = {};
  __m512 a = operand(_mm512_set1_ps(0.5f)), b = operand(_mm512_set1_ps(0.25f));
  make_distinct(sums);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) { sums[i] = _mm512_fmadd_ps(a, b, sums[i]); });
  }
  keep(sums);
}

constexpr IsaSet kAvx512 = IsaSet().with(Isa::Avx512);

}  // namespace

constinit const Peak kAvx512Peaks[3] = {
    {"vpmaddubsw", PeakKind::Int8, kAvx512, 2 * 64 * kSums, vpmaddubsw},
    {"vpdpbusd", PeakKind::Int8, kAvx512.with(Isa::Avx512Vnni), 2 * 64 * kSums, vpdpbusd},
    {"vfmadd", PeakKind::F32, kAvx512, 2 * 16 * kSums, vfmadd},
};

}  // namespace millrace
