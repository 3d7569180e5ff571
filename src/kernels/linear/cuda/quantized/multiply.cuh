// A warp multiplies a packed unit with its x: the unit in registers, x in shared memory (x.cuh).
//
// One token would fill one of the eight columns of a tensor-core product. It is spread over all of them: the x of each
// of eight runs (columns that share a scale) is in a column of its own, with zeros elsewhere. Scales are then applied
// once per unit instead of once per run.
//
// MXFP4 needs no start values, so each of its blocks has products of its own with all eight columns, of which only that
// of its run counts: selecting results takes half as many instructions as selecting x.
#pragma once

#include "kernels/linear/cuda/quantized/run_scales.cuh"
#include "kernels/linear/cuda/quantized/x.cuh"

namespace millrace {

// A lane's part of a unit's x: run lane / 4 of every eight, and the start values of the sums over runs 2 t and 2 t + 1.
// The lane reads nothing else of x.
template <DType kFormat>
struct OwnRuns {
  using U = Unit<kFormat>;
  uint4 x;
  float2 start[U::kRuns / 8], plain;
  float factor;

  __device__ __forceinline__ void load(const UnitX<kFormat, 1>& staged, int unit, int lane) {
    const int run = lane / 4, t = lane % 4;
    const uint8_t* from = staged.x + unit * staged.kUnitBytes;
    if constexpr (U::kRun == 32) {
      x = *reinterpret_cast<const uint4*>(from + run * 64 + t * 16);
    } else {
      const uint8_t* first = from + run / 2 * 64 + run % 2 * 8 + t * 16;
      const uint2 low = *reinterpret_cast<const uint2*>(first), high = *reinterpret_cast<const uint2*>(first + 256);
      x = {low.x, low.y, high.x, high.y};
    }
#pragma unroll
    for (int eight = 0; eight < U::kRuns / 8; ++eight) {
      if constexpr (!U::kFp4) {
        start[eight] = *reinterpret_cast<const float2*>(staged.starts + unit * U::kRuns + 8 * eight + 2 * t);
      }
    }
    if constexpr (U::kMinimum) plain = *reinterpret_cast<const float2*>(staged.plain + unit * U::kRuns + 2 * t);
    factor = staged.factors[unit];
  }
};

// One token: adds to the totals of rows g and g + 8, over runs 2 t and 2 t + 1 of every eight.
template <DType kFormat>
__device__ __forceinline__ void multiply_unit(const UnitFragment<kFormat>& unit, const RunScales<kFormat>& scales,
                                              const OwnRuns<kFormat>& own, int lane, float (&totals)[2]) {
  using U = Unit<kFormat>;
  constexpr int kEights = RunScales<kFormat>::kEights;
  float sums[2] = {0, 0};
  float products[kEights][2][4];
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight) {
    const float2 start = own.start[eight];
    products[eight][0][0] = products[eight][0][2] = start.x;
    products[eight][0][1] = products[eight][0][3] = start.y;
#pragma unroll
    for (float& sum : products[eight][1]) sum = 0;
  }
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    uint32_t low[4], high[4];
    unit.decode_half(block, 0, low);
    unit.decode_half(block, 1, high);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int run = U::kRun == 32 ? block : 2 * block + part;
      const int eight = run / 8, pair = U::kRun == 32 ? part : eight;
      const bool mine = lane / 4 == run % 8;
      mma<__half>(products[eight][part], low[2 * part], high[2 * part], low[2 * part + 1], high[2 * part + 1],
                  mine ? word(own.x, 2 * pair) : 0, mine ? word(own.x, 2 * pair + 1) : 0);
    }
  }
#pragma unroll
  for (int eight = 0; eight < kEights; ++eight) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float product = products[eight][0][i] + products[eight][1][i];
      sums[i / 2] = fmaf(scales.scale[eight][i / 2][i % 2], product, sums[i / 2]);
    }
  }
  if constexpr (U::kMinimum) {
    const float2 sum = own.plain;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums[half] = fmaf(scales.minimum[half][0], sum.x, fmaf(scales.minimum[half][1], sum.y, sums[half]));
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) totals[half] = fmaf(own.factor, sums[half], totals[half]);
}

template <>
__device__ __forceinline__ void multiply_unit(const UnitFragment<DType::MXFP4>& unit,
                                              const RunScales<DType::MXFP4>& scales, const OwnRuns<DType::MXFP4>& own,
                                              int lane, float (&totals)[2]) {
  float products[2][2] = {};  // [row g or g + 8][run 2 t or 2 t + 1]
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    uint32_t low[4], high[4];
    unit.decode_half(block, 0, low);
    unit.decode_half(block, 1, high);
    float d[4] = {0, 0, 0, 0};
    mma<__nv_bfloat16>(d, low[0], high[0], low[1], high[1], own.x.x, own.x.y);
    mma<__nv_bfloat16>(d, low[2], high[2], low[3], high[3], own.x.z, own.x.w);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (lane % 4 == block / 2) products[half][block % 2] = d[2 * half + block % 2];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* scale = scales.scale[0][half];
    const float sum = fmaf(scale[0], products[half][0], scale[1] * products[half][1]);
    totals[half] = fmaf(own.factor, sum * Unit<DType::MXFP4>::kSumFactor, totals[half]);
  }
}

// Up to eight tokens, one in each column.
template <DType kFormat>
__device__ __forceinline__ void multiply_unit(const UnitFragment<kFormat>& unit, const RunScales<kFormat>& scales,
                                              const uint8_t* x, const float* starts, const float* plain, int lane,
                                              float (&sums)[4]) {
  using U = Unit<kFormat>;
  constexpr int kParts = 32 / U::kRun;
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    uint32_t low[4], high[4];
    unit.decode_half(block, 0, low);
    unit.decode_half(block, 1, high);
    const uint4 xs = *reinterpret_cast<const uint4*>(x + block * 64);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int run = kParts * block + part;
      float2 start{};
      if constexpr (!U::kFp4) start = *reinterpret_cast<const float2*>(starts + run * 8 + lane % 4 * 2);
      float products[4] = {start.x, start.y, start.x, start.y};
#pragma unroll
      for (int j = part; j < (kParts == 2 ? part + 1 : 2); ++j) {
        mma<typename UnitX<kFormat, 8>::Number>(products, low[2 * j], high[2 * j], low[2 * j + 1], high[2 * j + 1],
                                                word(xs, 2 * j), word(xs, 2 * j + 1));
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = scales.scale_of(run, half, lane);
        sums[2 * half] = fmaf(scale, products[2 * half], sums[2 * half]);
        sums[2 * half + 1] = fmaf(scale, products[2 * half + 1], sums[2 * half + 1]);
        if constexpr (U::kMinimum) {
          const float2 sum = *reinterpret_cast<const float2*>(plain + run * 8 + lane % 4 * 2);
          const float minimum = scales.minimum_of(run, half, lane);
          sums[2 * half] = fmaf(minimum, sum.x, sums[2 * half]);
          sums[2 * half + 1] = fmaf(minimum, sum.y, sums[2 * half + 1]);
        }
      }
    }
  }
}

}  // namespace millrace
