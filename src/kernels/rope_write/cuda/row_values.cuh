// Elements of rows on their way into the KV cache, one per thread.
#pragma once

#include "kernels/cuda/values.cuh"
#include "tensor/blocks.h"

namespace millrace {

struct Rotation {
  GpuMatrix angles;  // [rows, rotary]: cosines, then sines
  int rotary;        // elements that RoPE rotates
  bool halves;       // pairs are (i, i + rotary / 2) instead of (2 i, 2 i + 1)
};

// Element i < r.rotary of the part of x that begins at column `first`, after RoPE.
__device__ inline float rotated(const Rotation& r, const GpuMatrix& x, int64_t row, int64_t first, int i) {
  const int half = r.rotary / 2;
  const int pair = r.halves ? i % half : i / 2;
  const bool is_first = r.halves ? i < half : i % 2 == 0;
  const int partner = r.halves ? (is_first ? i + half : i - half) : i ^ 1;
  const float own = x.get(row, first + i), other = x.get(row, first + partner);
  const float cosine = r.angles.get(row, pair), sine = r.angles.get(row, half + pair);
  return is_first ? own * cosine - other * sine : own * cosine + other * sine;
}

// Stores a block of 32 elements, one per lane.
__device__ inline void store_q8(std::byte* to, int i, float x) {
  const float largest = warp_max(fabsf(x));
  const float inverse = largest > 1e-30f ? 127 / largest : 0;  // as in kv_write's reference
  auto& block = reinterpret_cast<BlockQ8_0*>(to)[i / 32];
  block.qs[i % 32] = static_cast<int8_t>(rintf(x * inverse));
  if (i % 32 == 0) block.d = __half_as_ushort(__float2half_rn(within_half(largest / 127)));
}

}  // namespace millrace
