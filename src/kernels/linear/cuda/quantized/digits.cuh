// Up to four tokens times units of four-bit weights on the integer tensor cores: nibbles only need a mask. x is a
// 15-bit integer, split into two eight-bit digits, times a power of two per run (the columns that share a scale).
//
// A product has eight columns: two digits of each token, for 4 / tokens groups of runs. One token has four groups of
// two runs, two tokens have two groups of four runs, four tokens have one group of all runs. When a block is
// multiplied, each column holds the x of the run at that position in its own group. The product is therefore valid only
// in the columns of one group, i.e. in lanes 4 g + t with t / tokens = group. These lanes use it; the others discard
// it.
#pragma once

#include "kernels/linear/cuda/quantized/lane_scales.cuh"

namespace millrace {

template <DType kFormat>
inline constexpr bool kHasDigits = kFormat == DType::Q4_0 || kFormat == DType::Q4_1 || kFormat == DType::Q4_K;

// x of a block in shared memory. kTokens is 1, 2 or 4; some tokens may be missing.
template <DType kFormat, int kTokens>
struct UnitDigits {
  using U = Unit<kFormat>;
  static constexpr int kRunBytes = 64 * kTokens;
  static constexpr int kRunStride = U::kRuns + (kTokens == 4 ? 2 : 0);  // padding puts four tokens into different banks
  static constexpr int kTop = 13;  // exponent that the largest number of a run is scaled to

  uint8_t*
      digits;    // [unit][run][token][high, low][t][8 bytes in the order of masked nibbles: low ones, then high ones]
  float2* runs;  // [unit][token][kRunStride] factor of the integers, and the sum of x (see kept_sum)

  static __host__ __device__ int bytes(int units) { return units * (U::kRuns * kRunBytes + kTokens * kRunStride * 8); }
  __device__ UnitDigits(uint8_t* shared, int units)
      : digits(shared), runs(reinterpret_cast<float2*>(shared + units * U::kRuns * kRunBytes)) {}
  __device__ float* end(int units) const { return reinterpret_cast<float*>(runs + units * kTokens * kRunStride); }

  // Formats with minima: the sum that the minima are multiplied with. Others: the correction for the stored zero point.
  static __device__ __forceinline__ float kept_sum(float sum) { return U::kMinimum ? sum : sum * -U::kStoredZero; }

  // A warp stores one unit of a token; each lane holds eight consecutive elements. Writes only if `live`.
  __device__ __forceinline__ void put(const float (&v)[8], int token, int unit, bool live) const {
    const int lane = threadIdx.x % 32, quarter = lane % 4;
    uint32_t largest = 0;  // non-negative floats compare like their bits
#pragma unroll
    for (const float value : v) largest = max(largest, __float_as_uint(fabsf(value)));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const int exponent = max(static_cast<int>(largest >> 23) - 127, -100);
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + kTop - exponent) << 23);
    int x[8], sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[i] = __float2int_rn(v[i] * scale);
      sum += x[i];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    // Of columns 8 q + 2 t and 8 q + 2 t + 1, quarters q and q + 2 share a word. One assembles the words of the high
    // digits, the other those of the low digits.
    const bool second = quarter >= 2;
    uint8_t* run = digits + (unit * U::kRuns + lane / 4) * kRunBytes + token * 64;
    auto* to = reinterpret_cast<uint32_t*>(run + (second ? 32 : 0)) + quarter % 2;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const auto low = static_cast<uint32_t>(x[2 * t]), high = static_cast<uint32_t>(x[2 * t + 1]);
      const uint32_t highs = __byte_perm(low + 128, high + 128, 0x0501), lows = __byte_perm(low, high, 0x0400);
      const uint32_t other = __shfl_xor_sync(0xffffffffu, second ? highs : lows, 2);
      const uint32_t word = second ? __byte_perm(other, lows, 0x6240) : __byte_perm(highs, other, 0x6240);
      if (live) to[2 * t] = word;
    }
    if (live && quarter == 0) {  // NaN and infinity must not become finite
      const float factor = largest < 0x7f800000u ? __uint_as_float(static_cast<uint32_t>(127 - kTop + exponent) << 23)
                                                 : __int_as_float(-1);
      runs[(unit * kTokens + token) * kRunStride + lane / 4] = {factor, kept_sum(static_cast<float>(sum) * factor)};
    }
  }
};

// A lane's part of a unit's x: the runs of its group.
template <DType kFormat, int kTokens>
struct OwnDigits {
  static constexpr int kRuns = 2 * kTokens;  // per group
  uint2 x[kRuns];                            // of column lane / 4
  float4 runs[kTokens];                      // of token t % kTokens: pairs of runs

  __device__ __forceinline__ void load(const UnitDigits<kFormat, kTokens>& staged, int unit, int lane) {
    using X = UnitDigits<kFormat, kTokens>;
    const int group = lane / 8 / kTokens;
    const uint8_t* from =
        staged.digits + (unit * X::U::kRuns + group * kRuns) * X::kRunBytes + lane % (8 * kTokens) * 8;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) x[i] = *reinterpret_cast<const uint2*>(from + i * X::kRunBytes);
    const int token = lane % kTokens, own_group = lane % 4 / kTokens;
    const float2* all = staged.runs + (unit * kTokens + token) * X::kRunStride + own_group * kRuns;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) runs[i] = *reinterpret_cast<const float4*>(all + 2 * i);
  }
};

// Block `block` of a unit, 16 x 32, times b, 32 x 8.
template <DType kFormat>
__device__ __forceinline__ void multiply_bytes(int (&d)[4], const UnitFragment<kFormat>& unit, int block, uint2 b) {
  constexpr uint32_t kNibbles = 0x0f0f0f0fu;
  const uint32_t low = word(unit.low[block / 2], block % 2 * 2);       // row g
  const uint32_t high = word(unit.low[block / 2], block % 2 * 2 + 1);  // row g + 8
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(low & kNibbles), "r"(high & kNibbles), "r"(low >> 4 & kNibbles), "r"(high >> 4 & kNibbles), "r"(b.x),
        "r"(b.y), "r"(0));
}

// Adds to the sums of rows g and g + 8 of the lane's token, over the runs of its group.
template <DType kFormat, int kTokens>
__device__ __forceinline__ void multiply_unit(const UnitFragment<kFormat>& unit,
                                              const LaneScales<kFormat, kTokens>& scales,
                                              const OwnDigits<kFormat, kTokens>& own, int lane, float (&sums)[2]) {
  constexpr int kRuns = 2 * kTokens;
  int products[kTokens][2][2] = {};  // [pair of runs][row][run]
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    int d[4];
    multiply_bytes(d, unit, block, own.x[block % kRuns]);
    if (lane % 4 / kTokens == block / kRuns) {
      products[block % kRuns / 2][0][block % 2] = d[0] * 256 + d[1];
      products[block % kRuns / 2][1][block % 2] = d[2] * 256 + d[3];
    }
  }
#pragma unroll
  for (int pair = 0; pair < kTokens; ++pair) {
#pragma unroll
    for (int half = 0; half < 2; ++half) scales.add(half, pair, products[pair][half], own.runs[pair], sums[half]);
  }
}

}  // namespace millrace
