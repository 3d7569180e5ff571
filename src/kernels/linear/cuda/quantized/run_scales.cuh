// Decodes the scales of a unit in shared memory without redundant work: each lane decodes two runs of columns, 2 t and
// 2 t + 1 of every eight, for its rows g and g + 8, and gets the others by shuffles.
#pragma once

#include "kernels/linear/cuda/quantized/unit_fragments.cuh"

namespace millrace {

// Two bytes minus `zero` as floats: placed below the exponent of 1024 as f16, then 1024 + zero is subtracted.
__device__ __forceinline__ float2 two_bytes(uint32_t bytes, float zero = 0) {
  const uint32_t halves = __byte_perm(bytes, 0x64646464u, 0x4140);
  return __half22float2(__hsub2(*reinterpret_cast<const __half2*>(&halves), __float2half2_rn(1024.f + zero)));
}

template <DType kFormat>
struct RunScales {
  using U = Unit<kFormat>;
  static constexpr int kEights = U::kRuns / 8;
  float scale[kEights][2][2];  // [eight][row g or g + 8][run]
  float minimum[2][2];         // of formats that have one; added, hence mostly negative

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) load_row(unit + U::kScale, lane / 4 + 8 * half, lane % 4, half);
  }

  // Scale of run `run`, a compile-time constant.
  __device__ __forceinline__ float scale_of(int run, int half, int lane) const {
    return __shfl_sync(0xffffffffu, scale[run / 8][half][run % 2], lane / 4 * 4 + run % 8 / 2);
  }
  __device__ __forceinline__ float minimum_of(int run, int half, int lane) const {
    return __shfl_sync(0xffffffffu, minimum[half][run % 2], lane / 4 * 4 + run / 2);
  }

 private:
  __device__ __forceinline__ void load_row(const uint8_t* plane, int row, int t, int half) {
    if constexpr (U::kPairs) {
      const uint2 pairs = *reinterpret_cast<const uint2*>(plane + t / 2 * 256 + row * 16 + t % 2 * 8);
      set(half, {half_bits(pairs.x, 0), half_bits(pairs.y, 0)});
      minimum[half][0] = half_bits(pairs.x, 1);
      minimum[half][1] = half_bits(pairs.y, 1);
    } else if constexpr (U::kSuper) {
      const uint4 header = *reinterpret_cast<const uint4*>(plane + row * 16);
      const uint32_t scales =
          t < 2 ? header.y & 0x3f3f3f3fu : and_or(header.y >> 2, 0x30303030u, header.w & 0x0f0f0f0fu);
      const uint32_t minima =
          t < 2 ? header.z & 0x3f3f3f3fu : and_or(header.z >> 2, 0x30303030u, header.w >> 4 & 0x0f0f0f0fu);
      const float2 s = two_bytes(scales >> 16 * (t % 2)), m = two_bytes(minima >> 16 * (t % 2));
      const float d = half_bits(header.x, 0), d_minimum = -half_bits(header.x, 1);
      set(half, {d * s.x, d * s.y});
      minimum[half][0] = d_minimum * m.x;
      minimum[half][1] = d_minimum * m.y;
    } else if constexpr (U::kSixBits) {
      const float d = half_bits(reinterpret_cast<const uint16_t*>(plane + 256)[row], 0);
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const uint32_t two = *reinterpret_cast<const uint16_t*>(plane + row * 16 + eight * 8 + 2 * t);
        const float2 s = two_bytes(two ^ 0x8080u, 128);
        set(half, {d * s.x, d * s.y}, eight);
      }
    } else if constexpr (kFormat == DType::IQ4_XS) {
      const uint2 header = *reinterpret_cast<const uint2*>(plane + row * 8);
      const uint32_t low = header.y >> 8 * t, high = header.x >> (16 + 4 * t);
      const uint32_t two = (low & 15) | (high & 3) << 4 | (low & 0xf0) << 4 | (high & 12) << 10;
      const float2 s = two_bytes(two, 32);
      const float d = half_bits(header.x, 0);
      set(half, {d * s.x, d * s.y});
    } else if constexpr (U::kFp4) {
      const uint32_t two = *reinterpret_cast<const uint16_t*>(plane + row * 8 + 2 * t);
      set(half, {fp4_scale(two & 255), fp4_scale(two >> 8)});
    } else {
      const uint32_t two = *reinterpret_cast<const uint32_t*>(plane + row * 16 + 4 * t);
      set(half, {half_bits(two, 0), half_bits(two, 1)});
    }
  }

  __device__ __forceinline__ void set(int half, float2 two, int eight = 0) {
    scale[eight][half][0] = two.x;
    scale[eight][half][1] = two.y;
  }
};

}  // namespace millrace
