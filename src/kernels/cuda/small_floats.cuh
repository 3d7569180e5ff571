// Decodes the small floats of MXFP4 and FP8 weights.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace millrace {

// Half of the E8M0 scale 2^(e - 127), the factor of fp4_value(). An exponent of 0 is subnormal.
__device__ __forceinline__ float half_e8m0(uint32_t e) { return 0.5f * __uint_as_float(max(e << 23, 1u << 22)); }

// Twice the E2M1 number: kFp4Values of tensor/blocks.h.
__device__ __forceinline__ int fp4_value(int q) {
  const int m = q & 7, magnitude = m < 4 ? m : (2 | (m & 1)) << ((m >> 1) - 1);
  return q < 8 ? magnitude : -magnitude;
}

// The bits of an E4M3 number, moved up, are an f16 whose exponent is 8 too small.
__device__ __forceinline__ float e4m3_value(uint32_t q) {
  if ((q & 0x7f) == 0x7f) return __int_as_float(0x7fc00000);
  return 256.f * __half2float(__ushort_as_half(static_cast<unsigned short>((q & 0x80) << 8 | (q & 0x7f) << 7)));
}

}  // namespace millrace
