#include "hardware/peaks/peak.h"

namespace millrace {
namespace {

constexpr int kSums = 8;  // enough independent sums to hide the latency of one

void multiply_add_f32(int64_t rounds) {
  float sums[kSums] = {}, a = 1.0f, b = 0.5f;
  MR_OPAQUE(a);
  MR_OPAQUE(b);
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) {
      sums[i] = sums[i] * a + b;
      MR_OPAQUE(sums[i]);
    });
  }
}

void multiply_add_int(int64_t rounds) {
  int sums[kSums] = {}, a = 3, b = -5;
  asm volatile("" : "+r"(a), "+r"(b));
  for (int64_t round = 0; round < rounds; ++round) {
    unrolled<kSums>([&](int i) {
      sums[i] += a * b;
      asm volatile("" : "+r"(sums[i]), "+r"(a));
    });
  }
}

}  // namespace

constinit const Peak kScalarPeaks[2] = {
    {"scalar", PeakKind::Int8, {}, 2 * kSums, multiply_add_int},
    {"scalar", PeakKind::F32, {}, 2 * kSums, multiply_add_f32},
};

}  // namespace millrace
