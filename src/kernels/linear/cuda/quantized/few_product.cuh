// Product of a warp of few.cuh with a unit: two or up to four tokens as digits on the integer tensor cores, for formats
// that support them, otherwise up to eight tokens as f16, one per column.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/quantized/digits.cuh"
#include "kernels/linear/cuda/quantized/multiply.cuh"

namespace millrace {

inline constexpr int kFewTokens = 8;

// kTokens: 2 or 4 as digits, or kFewTokens.
template <DType kFormat, int kTokens>
class FewProduct {
 public:
  using X = UnitDigits<kFormat, kTokens>;
  static __host__ __device__ int x_bytes(int, int units) { return X::bytes(units); }
  static __device__ __forceinline__ X place_x(uint8_t* shared, int, int units) { return X(shared, units); }

  __device__ __forceinline__ void load(const uint8_t* from, int lane) {
    unit_.load_bits(from, lane);
    scales_.load(from, lane);
  }
  __device__ __forceinline__ void multiply(const X& staged, int unit, int lane) {
    OwnDigits<kFormat, kTokens> own;
    own.load(staged, unit, lane);
    multiply_unit(unit_, scales_, own, lane, sums_);
  }
  // Stores the sums of a tile as [token][kTileStride] and resets them.
  __device__ __forceinline__ void put(float* tile, int tokens, int lane) {
    const int token = lane % kTokens;
    float* to = tile + token * kTileStride + lane / 4;
    if constexpr (kTokens == 2) {  // of two lanes with the same token, one adds row g, the other row g + 8
      const bool second = lane % 4 >= 2;
      const float other = __shfl_xor_sync(0xffffffffu, second ? sums_[0] : sums_[1], 2);
      to[second ? 8 : 0] = (second ? sums_[1] : sums_[0]) + other;
    } else if (token < tokens) {
      to[0] = sums_[0];
      to[8] = sums_[1];
    }
    sums_[0] = sums_[1] = 0;
  }

 private:
  UnitFragment<kFormat> unit_;
  LaneScales<kFormat, kTokens> scales_;
  float sums_[2] = {0, 0};  // of rows g and g + 8 of token t % kTokens
};

template <DType kFormat>
class FewProduct<kFormat, kFewTokens> {
 public:
  using U = Unit<kFormat>;
  using X = UnitX<kFormat, kFewTokens>;
  static __host__ __device__ int x_bytes(int tokens, int units) { return X::bytes(tokens, units); }
  static __device__ __forceinline__ X place_x(uint8_t* shared, int tokens, int units) {
    return X(shared, tokens, units);
  }

  __device__ __forceinline__ void load(const uint8_t* from, int lane) {
    unit_.load_bits(from, lane);
    scales_.load(from, lane);
  }
  __device__ __forceinline__ void multiply(const X& staged, int unit, int lane) {
    // Missing tokens repeat the last one.
    const uint8_t* x = staged.x + min(lane / 4, staged.tokens - 1) * staged.stride + unit * staged.kUnitBytes;
    const int first_run = unit * U::kRuns * kFewTokens;
    float products[4] = {0, 0, 0, 0};
    multiply_unit<kFormat>(unit_, scales_, x + lane % 4 * 16, staged.starts + first_run, staged.plain + first_run, lane,
                           products);
    const float2 factors = *reinterpret_cast<const float2*>(staged.factors + unit * kFewTokens + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums_[i] = fmaf(i % 2 == 0 ? factors.x : factors.y, products[i] * U::kSumFactor, sums_[i]);
    }
  }
  __device__ __forceinline__ void put(float* tile, int tokens, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = lane % 4 * 2 + i % 2;
      if (token < tokens) tile[token * kTileStride + lane / 4 + i / 2 * 8] = sums_[i];
      sums_[i] = 0;
    }
  }

 private:
  UnitFragment<kFormat> unit_;
  RunScales<kFormat> scales_;
  float sums_[4] = {0, 0, 0, 0};  // of rows g and g + 8 of tokens 2 t and 2 t + 1
};

}  // namespace millrace
