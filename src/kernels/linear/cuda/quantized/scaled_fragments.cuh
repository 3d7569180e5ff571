// Packed weights as scaled bf16 operands of tensor-core products, at little more than one instruction for each step of
// a pair: pick the bits, multiply and add.
//
// The bits of an integer u < 256, read as bf16, are the number u 2^-133: subnormal numbers and the smallest normal ones
// are equally spaced. One fma with scale 2^100 and with -zero scale 2^-33 makes the weight times 2^-33, rounded once.
// MXFP4 has its own way to weights times 2^-32 (fp4.cuh). The caller multiplies its sums with kRaisedSumFactor.
#pragma once

#include "kernels/linear/cuda/quantized/run_scales.cuh"

namespace millrace {

__device__ __forceinline__ __nv_bfloat162 as_bf16s(uint32_t v) { return *reinterpret_cast<const __nv_bfloat162*>(&v); }
__device__ __forceinline__ uint32_t as_word(__nv_bfloat162 v) { return *reinterpret_cast<const uint32_t*>(&v); }

template <DType kFormat>
inline constexpr float kRaisedSumFactor = Unit<kFormat>::kFp4 ? Unit<kFormat>::kSumFactor : 0x1p33f;

// Scales times 2^100 and minima of the lane's runs (RunScales), as pairs of equal bf16.
template <DType kFormat>
struct RaisedScales {
  using U = Unit<kFormat>;
  uint32_t scale[RunScales<kFormat>::kEights][2][2], minimum[2][2];

  static __device__ __forceinline__ uint32_t twice(float v) { return as_word(__float2bfloat162_rn(v)); }
  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    RunScales<kFormat> scales;
    scales.load(unit, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int eight = 0; eight < RunScales<kFormat>::kEights; ++eight) {
        scale[eight][i / 2][i % 2] = twice(scales.scale[eight][i / 2][i % 2] * 0x1p100f);
      }
      if constexpr (U::kMinimum)
        minimum[i / 2][i % 2] = twice(scales.minimum[i / 2][i % 2] / kRaisedSumFactor<kFormat>);
    }
  }
};

// The bytes of all runs of rows g and g + 8.
template <>
struct RaisedScales<DType::MXFP4> {
  uint2 rows[2];

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows[half] = *reinterpret_cast<const uint2*>(unit + Unit<DType::MXFP4>::kScale + (lane / 4 + 8 * half) * 8);
    }
  }
  __device__ __forceinline__ uint32_t pair(int block, int half) const {
    return fp4_scale_pair(block < 4 ? rows[half].x : rows[half].y, block % 4);
  }
};

// A lane's bits of 64 columns of a unit in shared memory.
template <DType kFormat>
struct QuarterBits {
  using U = Unit<kFormat>;
  static constexpr bool kFourBits = !U::kWide && !U::kFifthBit && !U::kSixBits;
  uint4 low[U::kBytes ? 2 : 1];
  uint32_t high[2];

  __device__ __forceinline__ void load(const uint8_t* unit, int lane, int quarter) {
#pragma unroll
    for (int i = 0; i < (U::kBytes ? 2 : 1); ++i) {
      const int at = quarter * (U::kBytes ? 2 : 1) + i;
      low[i] = *reinterpret_cast<const uint4*>(unit + (at * 32 + lane) * 16);
    }
    if constexpr (U::kFifthBit) {
      high[0] = *reinterpret_cast<const uint32_t*>(unit + U::kHigh + lane * 16 + quarter * 4);
    }
    if constexpr (U::kSixBits) {
      const uint8_t* from = unit + U::kHigh + (quarter / 2 * 32 + lane) * 16 + quarter % 2 * 8;
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      high[0] = two.x;
      high[1] = two.y;
    }
  }

  // Stored numbers of block `block` (0 or 1), row g + 8 half, as pairs. Odd pairs of four bits stay in place and are 16
  // times as large.
  __device__ __forceinline__ void stored(int block, int half, uint32_t (&pairs)[4]) const {
    const int w = block * 2 + half;
    if constexpr (U::kWide) {
      uint32_t bytes[2];
      if constexpr (U::kTable) {
        look_up_levels(word(low[0], w), bytes);
      } else {
        bytes[0] = word(low[block], 2 * half);
        bytes[1] = word(low[block], 2 * half + 1);
      }
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const uint32_t b = bytes[p / 2];
        pairs[p] = p % 2 == 0 ? b & 0x00ff00ffu : __byte_perm(b, 0, 0x4341);
      }
    } else if constexpr (kFourBits) {
      const uint32_t nibbles = word(low[0], w), upper = nibbles >> 8;
      pairs[0] = nibbles & 0x000f000fu;
      pairs[1] = nibbles & 0x00f000f0u;
      pairs[2] = upper & 0x000f000fu;
      pairs[3] = upper & 0x00f000f0u;
    } else {
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        pairs[p] = word(low[0], w) >> 4 * p & 0x000f000fu;
        if constexpr (U::kFifthBit) pairs[p] = and_or(shift_right(high[0], 4 * w + p - 4), 0x00100010u, pairs[p]);
        if constexpr (U::kSixBits) {
          pairs[p] = and_or(shift_right(high[block], 8 * half + 2 * p - 4), 0x00300030u, pairs[p]);
        }
      }
    }
  }
};

// Weights of 64 columns, as the fragments of four products of 16 columns.
template <DType kFormat>
__device__ __forceinline__ void scale_quarter(const QuarterBits<kFormat>& bits, const RaisedScales<kFormat>& scales,
                                              int quarter, int lane, uint32_t (&a)[4][4]) {
  using U = Unit<kFormat>;
  constexpr uint32_t kMinusZeroBits = (0x8000u | U::kStoredZero) * 0x10001u;  // -zero 2^-133
#pragma unroll
  for (int block = 0; block < 2; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t pairs[4];
      bits.stored(block, half, pairs);
      __nv_bfloat162 scale{}, sixteenth{}, offset{};
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        if (p == 0 || (U::kRun == 16 && p == 2)) {
          const int run = (2 * quarter + block) * (32 / U::kRun) + (U::kRun == 16 ? p / 2 : 0);
          const int source = lane / 4 * 4 + run % 8 / 2;
          scale = as_bf16s(__shfl_sync(0xffffffffu, scales.scale[run / 8][half][run % 2], source));
          if constexpr (U::kMinimum) {
            offset = as_bf16s(__shfl_sync(0xffffffffu, scales.minimum[half][run % 2], source));
          } else {
            offset = __hmul2(scale, as_bf16s(kMinusZeroBits));
          }
          if constexpr (QuarterBits<kFormat>::kFourBits) sixteenth = __hmul2(scale, __float2bfloat162_rn(0.0625f));
        }
        const __nv_bfloat162 u = as_bf16s(pairs[p]);
        const __nv_bfloat162 factor = QuarterBits<kFormat>::kFourBits && p % 2 == 1 ? sixteenth : scale;
        a[2 * block + p / 2][p % 2 * 2 + half] = as_word(__hfma2(u, factor, offset));
      }
    }
  }
}

template <>
__device__ __forceinline__ void scale_quarter(const QuarterBits<DType::MXFP4>& bits,
                                              const RaisedScales<DType::MXFP4>& scales, int quarter, int,
                                              uint32_t (&a)[4][4]) {
#pragma unroll
  for (int block = 0; block < 2; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t pairs[4];
      decode_fp4(word(bits.low[0], 2 * block + half), pairs);
      scale_fp4(pairs, scales.pair(2 * quarter + block, half));
#pragma unroll
      for (int p = 0; p < 4; ++p) a[2 * block + p / 2][p % 2 * 2 + half] = pairs[p];
    }
  }
}

}  // namespace millrace
