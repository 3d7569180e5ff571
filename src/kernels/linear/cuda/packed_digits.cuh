// One token times units of four-bit numbers on the integer tensor cores: nibbles need nothing but a mask, and x is
// integers of 15 bits and a power of two for every run of columns that shares a scale, in two digits of eight bits.
//
// The eight columns of a product are the two digits of four runs: column pair j has runs 2 j of even blocks and 2 j + 1
// of odd ones, whatever the block that is multiplied. A block's product is thus right in one pair, which is that of
// lanes 4 g + t with t = j; those take it, and the others take nothing.
#pragma once

#include "kernels/linear/cuda/lane_scales.cuh"

namespace millrace {

template <DType kFormat>
inline constexpr bool kHasDigits = kFormat == DType::Q4_0 || kFormat == DType::Q4_1 || kFormat == DType::Q4_K;

// x of a block in shared memory.
template <DType kFormat>
struct UnitDigits {
  using U = Unit<kFormat>;
  static constexpr int kUnitBytes = kUnitColumns * 2;
  static constexpr int kTop = 13;  // the exponent that the largest number of a run gets

  uint8_t* digits;  // [unit][run][high, low][t][8 bytes, in the order of masked nibbles: low ones, then high ones]
  float2* runs;     // [unit][run] what integers are to be multiplied with, and the sum of x (see kept_sum)

  static __host__ __device__ int bytes(int units) { return units * (kUnitBytes + U::kRuns * 8); }
  __device__ UnitDigits(uint8_t* shared, int units)
      : digits(shared), runs(reinterpret_cast<float2*>(shared + units * kUnitBytes)) {}
  __device__ float* end(int units) const { return reinterpret_cast<float*>(runs + units * U::kRuns); }

  // Of formats with minima, the sum that those are multiplied with; of others, what takes the stored zero out again.
  static __device__ __forceinline__ float kept_sum(float sum) { return U::kMinimum ? sum : sum * -U::kStoredZero; }

  // A warp puts one unit there: each lane has eight neighbours of it. Nothing is written unless `live`.
  __device__ __forceinline__ void put(const float (&v)[8], int unit, bool live) const {
    const int lane = threadIdx.x % 32, quarter = lane % 4;
    uint32_t largest = 0;  // the bits of floats that are not negative are in the order of the floats
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
    // Of the columns 8 q + 2 t and the next one, quarters q and q + 2 share a word. One makes the high digits' words,
    // the other the low digits'.
    const bool second = quarter >= 2;
    auto* to =
        reinterpret_cast<uint32_t*>(digits + unit * kUnitBytes + lane / 4 * 64 + (second ? 32 : 0)) + quarter % 2;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const auto low = static_cast<uint32_t>(x[2 * t]), high = static_cast<uint32_t>(x[2 * t + 1]);
      const uint32_t highs = __byte_perm(low + 128, high + 128, 0x0501), lows = __byte_perm(low, high, 0x0400);
      const uint32_t other = __shfl_xor_sync(0xffffffffu, second ? highs : lows, 2);
      const uint32_t word = second ? __byte_perm(other, lows, 0x6240) : __byte_perm(highs, other, 0x6240);
      if (live) to[2 * t] = word;
    }
    if (live && quarter == 0) {  // what is no number must not become one
      const float factor = largest < 0x7f800000u ? __uint_as_float(static_cast<uint32_t>(127 - kTop + exponent) << 23)
                                                 : __int_as_float(-1);
      runs[unit * U::kRuns + lane / 4] = {factor, kept_sum(static_cast<float>(sum) * factor)};
    }
  }
};

// What a lane has of a unit's x.
template <DType kFormat>
struct OwnDigits {
  uint2 x[2];   // of column lane / 4: for even blocks and for odd ones
  float4 runs;  // of the runs 2 t and 2 t + 1

  __device__ __forceinline__ void load(const UnitDigits<kFormat>& staged, int unit, int lane) {
    const uint8_t* from = staged.digits + unit * staged.kUnitBytes + lane / 8 * 128 + lane % 8 * 8;
    x[0] = *reinterpret_cast<const uint2*>(from);
    x[1] = *reinterpret_cast<const uint2*>(from + 64);
    runs = *reinterpret_cast<const float4*>(staged.runs + unit * Unit<kFormat>::kRuns + lane % 4 * 2);
  }
};

// Block `block` of a unit, 16 x 32, times b, 32 x 8.
template <DType kFormat>
__device__ __forceinline__ void multiply_bytes(int (&d)[4], const UnitFragment<kFormat>& unit, int block, uint2 b) {
  constexpr uint32_t kNibbles = 0x0f0f0f0fu;
  const uint32_t low = word(unit.low[block / 2], block % 2 * 2), high = word(unit.low[block / 2], block % 2 * 2 + 1);
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(low & kNibbles), "r"(high & kNibbles), "r"(low >> 4 & kNibbles), "r"(high >> 4 & kNibbles), "r"(b.x),
        "r"(b.y), "r"(0));
}

// Adds to the sums of rows g and g + 8, over the runs 2 t and 2 t + 1.
template <DType kFormat>
__device__ __forceinline__ void multiply_unit(const UnitFragment<kFormat>& unit, const LaneScales<kFormat>& scales,
                                              const OwnDigits<kFormat>& own, int lane, float (&sums)[2]) {
  int products[2][2] = {};  // [row][run]
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    int d[4];
    multiply_bytes(d, unit, block, own.x[block % 2]);
    if (lane % 4 == block / 2) {
      products[0][block % 2] = d[0] * 256 + d[1];
      products[1][block % 2] = d[2] * 256 + d[3];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) scales.add(half, products[half], own.runs, sums[half]);
}

}  // namespace millrace
