// Rows of x as int8, 32 elements to a scale. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

struct Quantized32 {
  int8x16_t q[2];
  float scale;
  int sum[2];  // of all q, and of the second 16 alone
};

MR_INLINE inline Quantized32 quantize_32(const float* x) {
  float32x4_t v[8], most = vdupq_n_f32(0);
  unrolled<8>([&](auto i) MR_INLINE {
    v[i] = vld1q_f32(x + 4 * i);
    most = vmaxq_f32(most, vabsq_f32(v[i]));
  });
  const float largest = vmaxvq_f32(most);
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  int32x4_t rounded[8];
  unrolled<8>([&](auto i) MR_INLINE { rounded[i] = vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse)); });
  Quantized32 out;
  unrolled<2>([&](auto h) MR_INLINE {
    const int16x8_t low = vcombine_s16(vqmovn_s32(rounded[4 * h]), vqmovn_s32(rounded[4 * h + 1]));
    const int16x8_t high = vcombine_s16(vqmovn_s32(rounded[4 * h + 2]), vqmovn_s32(rounded[4 * h + 3]));
    out.q[h] = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
  });
  out.scale = largest / 127.0f;
  out.sum[1] = vaddlvq_s8(out.q[1]);
  out.sum[0] = vaddlvq_s8(out.q[0]) + out.sum[1];
  return out;
}

// For quad-wise dot products: `rows` rows side by side, 32 elements of each.
template <int rows>
struct XBlock {
  float scale[rows];    // times the unit of the format's unpacked weights
  float sum[2][rows];   // of the quantized x: all 32, and the second 16 alone
  int32_t total[rows];  // of q
  int8_t q[rows][32];

  MR_INLINE void set(int r, const Quantized32& v, float unit) {
    scale[r] = v.scale * unit;
    sum[0][r] = v.scale * static_cast<float>(v.sum[0]);
    sum[1][r] = v.scale * static_cast<float>(v.sum[1]);
    total[r] = v.sum[0];
    vst1q_s8(q[r], v.q[0]);
    vst1q_s8(q[r] + 16, v.q[1]);
  }
};

// Rows from m_begin on, `valid` of them; the others become zeros.
template <class Block>
void quantize_tile(const Matrix& x, int64_t m_begin, int64_t valid, int rows, float unit, Block* out) {
  const Quantized32 nothing{{vdupq_n_s8(0), vdupq_n_s8(0)}, 0, {0, 0}};
  for (int64_t b = 0; b < x.cols / 32; ++b) {
    for (int r = 0; r < rows; ++r) {
      out[b].set(r, r < valid ? quantize_32(x.row<float>(m_begin + r) + 32 * b) : nothing, unit);
    }
  }
}
