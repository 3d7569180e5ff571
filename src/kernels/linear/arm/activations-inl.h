// Rows of x as int8, 32 elements to a scale. Included inside a target region.

// `rows` rows side by side, 32 elements of each.
template <int rows>
struct XBlock {
  float scale[rows];   // times the unit that the format's unpacked weights come in
  float sum[2][rows];  // of the quantized x: all 32, and the second 16 alone
  int8_t q[rows][32];
};

struct Quantized32 {
  int8x16_t q[2];
  float scale;
  float sum[2];
};

inline Quantized32 quantize_32(const float* x) {
  float32x4_t v[8], most = vdupq_n_f32(0);
  for (int i = 0; i < 8; ++i) {
    v[i] = vld1q_f32(x + 4 * i);
    most = vmaxq_f32(most, vabsq_f32(v[i]));
  }
  const float largest = vmaxvq_f32(most);
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  int32x4_t rounded[8];
  for (int i = 0; i < 8; ++i) rounded[i] = vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse));
  Quantized32 out;
  for (int h = 0; h < 2; ++h) {
    const int16x8_t low = vcombine_s16(vqmovn_s32(rounded[4 * h]), vqmovn_s32(rounded[4 * h + 1]));
    const int16x8_t high = vcombine_s16(vqmovn_s32(rounded[4 * h + 2]), vqmovn_s32(rounded[4 * h + 3]));
    out.q[h] = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
  }
  out.scale = largest / 127.0f;
  const int second = vaddlvq_s8(out.q[1]);
  out.sum[0] = out.scale * static_cast<float>(vaddlvq_s8(out.q[0]) + second);
  out.sum[1] = out.scale * static_cast<float>(second);
  return out;
}

template <int rows>
void quantize_tile(const Matrix& x, int64_t m_begin, int64_t valid, float unit, XBlock<rows>* out) {
  for (int64_t b = 0; b < x.cols / 32; ++b) {
    for (int r = 0; r < rows; ++r) {
      if (r >= valid) {
        out[b].scale[r] = out[b].sum[0][r] = out[b].sum[1][r] = 0;
        for (auto& q : out[b].q[r]) q = 0;
        continue;
      }
      const Quantized32 v = quantize_32(x.row<float>(m_begin + r) + 32 * b);
      out[b].scale[r] = v.scale * unit;
      out[b].sum[0][r] = v.sum[0];
      out[b].sum[1][r] = v.sum[1];
      vst1q_s8(out[b].q[r], v.q[0]);
      vst1q_s8(out[b].q[r] + 16, v.q[1]);
    }
  }
}
