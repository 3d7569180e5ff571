#include "tensor/dequantize.h"

#include <cstring>

#include "base/error.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/kv_dtype.h"

namespace millrace {
namespace {

int nibble(const uint8_t* qs, int e) { return qs[e % 16] >> (e / 16 * 4) & 15; }
int fifth_bit(const uint8_t* qh, int e) { return (qh[e / 8] >> (e % 8) & 1) << 4; }

void decode(const BlockQ8_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int e = 0; e < 32; ++e) out[e] = d * float(b.qs[e]);
}

void decode(const BlockQ4_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int e = 0; e < 32; ++e) out[e] = d * float(nibble(b.qs, e) - 8);
}

void decode(const BlockQ4_1& b, float* out) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int e = 0; e < 32; ++e) out[e] = d * float(nibble(b.qs, e)) + m;
}

void decode(const BlockQ5_0& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int e = 0; e < 32; ++e) out[e] = d * float((nibble(b.qs, e) | fifth_bit(b.qh, e)) - 16);
}

void decode(const BlockQ5_1& b, float* out) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int e = 0; e < 32; ++e) out[e] = d * float(nibble(b.qs, e) | fifth_bit(b.qh, e)) + m;
}

void decode(const BlockIQ4_NL& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int e = 0; e < 32; ++e) out[e] = d * float(kIq4Values[nibble(b.qs, e)]);
}

void decode(const BlockMXFP4& b, float* out) {
  const float d = e8m0_half(b.e);
  for (int e = 0; e < 32; ++e) out[e] = d * float(kFp4Values[nibble(b.qs, e)]);
}

void decode(const BlockF8_E4M3& b, float* out) {
  for (int e = 0; e < 32; ++e) out[e] = b.d * e4m3_to_f32(b.qs[e]);
}

int two_bits(const uint8_t* qs, int e) { return qs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3; }
int k_nibble(const uint8_t* qs, int e) { return qs[e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15; }

void decode(const BlockQ2_K& b, float* out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * float(b.scales[group] & 15), min = dmin * float(b.scales[group] >> 4);
    for (int e = group * 16; e < group * 16 + 16; ++e) out[e] = scale * float(two_bits(b.qs, e)) - min;
  }
}

void decode(const BlockQ3_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * float(q3_k_scale(b.scales, group));
    for (int e = group * 16; e < group * 16 + 16; ++e) {
      const int q = two_bits(b.qs, e) | (b.hmask[e % 32] >> (e / 32) & 1) << 2;
      out[e] = scale * float(q - 4);
    }
  }
}

void decode(const BlockQ4_K& b, float* out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = k_scale_min(b.scales, group);
    const float scale = d * float(packed.scale), min = dmin * float(packed.min);
    for (int e = group * 32; e < group * 32 + 32; ++e) out[e] = scale * float(k_nibble(b.qs, e)) - min;
  }
}

void decode(const BlockQ5_K& b, float* out) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = k_scale_min(b.scales, group);
    const float scale = d * float(packed.scale), min = dmin * float(packed.min);
    for (int e = group * 32; e < group * 32 + 32; ++e) {
      const int q = k_nibble(b.qs, e) | (b.qh[e % 32] >> group & 1) << 4;
      out[e] = scale * float(q) - min;
    }
  }
}

void decode(const BlockQ6_K& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * float(b.scales[group]);
    for (int e = group * 16; e < group * 16 + 16; ++e) {
      const int low = b.ql[e / 128 * 64 + e % 64] >> (e / 64 % 2 * 4) & 15;
      out[e] = scale * float((low | two_bits(b.qh, e) << 4) - 32);
    }
  }
}

void decode(const BlockIQ4_XS& b, float* out) {
  const float d = f16_to_f32(b.d);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * float(iq4_xs_scale(b, group));
    for (int e = 0; e < 32; ++e) out[group * 32 + e] = scale * float(kIq4Values[nibble(b.qs + group * 16, e)]);
  }
}

template <class Block>
void decode_row(const std::byte* src, float* dst, int64_t n) {
  const auto* blocks = reinterpret_cast<const Block*>(src);
  for (int64_t i = 0; i < n / Block::kElements; ++i) decode(blocks[i], dst + i * Block::kElements);
}

}  // namespace

void dequantize_row(DType dtype, const std::byte* src, float* dst, int64_t n) {
  MR_ASSERT(n % info(dtype).block == 0);
  if (dtype == kFp8) {
    for (int64_t i = 0; i < n; ++i) dst[i] = e4m3_to_f32(static_cast<uint8_t>(src[i]));
    return;
  }
  const auto* halves = reinterpret_cast<const uint16_t*>(src);
  switch (dtype) {
    case DType::F32:
      if (n > 0) std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::F16:
      for (int64_t i = 0; i < n; ++i) dst[i] = f16_to_f32(halves[i]);
      return;
    case DType::BF16:
      for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_f32(halves[i]);
      return;
    case DType::Q8_0:
      return decode_row<BlockQ8_0>(src, dst, n);
    case DType::Q4_0:
      return decode_row<BlockQ4_0>(src, dst, n);
    case DType::Q4_1:
      return decode_row<BlockQ4_1>(src, dst, n);
    case DType::Q5_0:
      return decode_row<BlockQ5_0>(src, dst, n);
    case DType::Q5_1:
      return decode_row<BlockQ5_1>(src, dst, n);
    case DType::Q2_K:
      return decode_row<BlockQ2_K>(src, dst, n);
    case DType::Q3_K:
      return decode_row<BlockQ3_K>(src, dst, n);
    case DType::Q4_K:
      return decode_row<BlockQ4_K>(src, dst, n);
    case DType::Q5_K:
      return decode_row<BlockQ5_K>(src, dst, n);
    case DType::Q6_K:
      return decode_row<BlockQ6_K>(src, dst, n);
    case DType::IQ4_NL:
      return decode_row<BlockIQ4_NL>(src, dst, n);
    case DType::IQ4_XS:
      return decode_row<BlockIQ4_XS>(src, dst, n);
    case DType::MXFP4:
      return decode_row<BlockMXFP4>(src, dst, n);
    case DType::F8_E4M3:
      return decode_row<BlockF8_E4M3>(src, dst, n);
  }
}

}  // namespace millrace
