// Rows of x as int8, 32 elements to a scale. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

struct Quantized32 {
  int8x16_t q[2];
  float scale;
  int sum[2];  // of all q, and of the second 16 alone
};

// The low bytes of four vectors.
MR_INLINE inline int8x16_t low_bytes(const float32x4_t* v) {
  const auto halves = [](float32x4_t a, float32x4_t b)
                          MR_INLINE { return vuzp1q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b)); };
  return vreinterpretq_s8_u8(
      vuzp1q_u8(vreinterpretq_u8_u16(halves(v[0], v[1])), vreinterpretq_u8_u16(halves(v[2], v[3]))));
}

MR_INLINE inline Quantized32 quantize_32(const float* x) {
  float32x4_t v[8], most[8];
  unrolled<8>([&](auto i) MR_INLINE {
    v[i] = vld1q_f32(x + 4 * i);
    most[i] = vabsq_f32(v[i]);
  });
  unrolled<4>([&](auto i) MR_INLINE { most[i] = vmaxq_f32(most[i], most[i + 4]); });
  const float largest = vmaxvq_f32(vmaxq_f32(vmaxq_f32(most[0], most[1]), vmaxq_f32(most[2], most[3])));
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  // A float of this size has no fraction left: adding rounds, and the integer stands in the low bits. Conversions would
  // have to queue for one pipe of four.
  const float32x4_t large = vdupq_n_f32(0x1.8p23f);
  unrolled<8>([&](auto i) MR_INLINE { v[i] = vaddq_f32(vmulq_n_f32(v[i], inverse), large); });
  Quantized32 out;
  out.q[0] = low_bytes(v);
  out.q[1] = low_bytes(v + 4);
  out.scale = largest * (1 / 127.0f);
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
