// Random weights in any file format, and their values element by element.
#pragma once

#include <cstring>
#include <vector>

#include "support.cuh"
#include "tensor/blocks.h"
#include "tensor/dtype.h"

namespace millrace {

struct BlockShape {
  int elements, bytes;
};

inline BlockShape block_shape(DType f) {
  switch (f) {
    case DType::F32:
      return {1, 4};
    case DType::F16:
    case DType::BF16:
      return {1, 2};
    case DType::Q8_0:
      return {32, sizeof(BlockQ8_0)};
    case DType::Q4_0:
      return {32, sizeof(BlockQ4_0)};
    case DType::Q4_1:
      return {32, sizeof(BlockQ4_1)};
    case DType::Q5_0:
      return {32, sizeof(BlockQ5_0)};
    case DType::Q5_1:
      return {32, sizeof(BlockQ5_1)};
    case DType::Q2_K:
      return {256, sizeof(BlockQ2_K)};
    case DType::Q3_K:
      return {256, sizeof(BlockQ3_K)};
    case DType::Q4_K:
      return {256, sizeof(BlockQ4_K)};
    case DType::Q5_K:
      return {256, sizeof(BlockQ5_K)};
    case DType::Q6_K:
      return {256, sizeof(BlockQ6_K)};
    case DType::IQ4_NL:
      return {32, sizeof(BlockIQ4_NL)};
    case DType::IQ4_XS:
      return {256, sizeof(BlockIQ4_XS)};
    case DType::MXFP4:
      return {32, sizeof(BlockMXFP4)};
    case DType::F8_E4M3:
      return {32, sizeof(BlockF8_E4M3)};
  }
  return {1, 2};
}

inline float half_to_float(uint16_t bits) { return __half2float(__half(__half_raw{bits})); }
inline uint16_t float_to_half(float v) { return static_cast<__half_raw>(__float2half(v)).x; }

// Random bits, then plausible scales.
inline void random_block(DType f, uint8_t* block, uint64_t seed) {
  const BlockShape shape = block_shape(f);
  for (int i = 0; i < shape.bytes; ++i) block[i] = static_cast<uint8_t>(mix(seed * 1031 + static_cast<uint64_t>(i)));
  const auto put = [&](size_t at, float low, float high) {
    const float u = static_cast<float>(mix(seed * 7919 + at) >> 8) * 0x1p-24f;
    const uint16_t half = float_to_half(low + u * (high - low));
    std::memcpy(block + at, &half, 2);
  };
  switch (f) {
    case DType::Q8_0:
      return put(0, 0.0005f, 0.002f);
    case DType::Q4_0:
      return put(0, -0.02f, 0.02f);
    case DType::Q5_0:
      return put(0, -0.01f, 0.01f);
    case DType::IQ4_NL:
      return put(0, 0.0005f, 0.002f);
    case DType::Q4_1:
    case DType::Q5_1:
      put(0, 0.005f, 0.02f);
      return put(2, -0.2f, 0.f);
    case DType::Q4_K:
    case DType::Q5_K:
      put(0, 0.0002f, 0.0006f);
      return put(2, 0.001f, 0.004f);
    case DType::Q2_K:
      put(80, 0.001f, 0.01f);
      return put(82, 0.001f, 0.01f);
    case DType::Q3_K:
      return put(108, 0.0005f, 0.002f);
    case DType::Q6_K:
      return put(208, 0.00005f, 0.0002f);
    case DType::IQ4_XS:
      return put(0, 0.00005f, 0.0002f);
    case DType::MXFP4:
      block[0] = static_cast<uint8_t>(116 + block[0] % 6);
      return;
    default:
      return;
  }
}

template <class Block>
const Block& as_block(const uint8_t* bytes) {
  return *reinterpret_cast<const Block*>(bytes);
}

inline int small_nibble(const uint8_t* qs, int e) { return qs[e % 16] >> (e / 16 * 4) & 15; }
inline int fifth(const uint8_t* qh, int e) { return (qh[e / 8] >> (e % 8) & 1) << 4; }

// Element e of a block, following the definitions in tensor/blocks.h.
inline float block_value(DType f, const uint8_t* bytes, int e) {
  switch (f) {
    case DType::Q8_0: {
      const auto& b = as_block<BlockQ8_0>(bytes);
      return half_to_float(b.d) * float(b.qs[e]);
    }
    case DType::Q4_0: {
      const auto& b = as_block<BlockQ4_0>(bytes);
      return half_to_float(b.d) * float(small_nibble(b.qs, e) - 8);
    }
    case DType::Q4_1: {
      const auto& b = as_block<BlockQ4_1>(bytes);
      return half_to_float(b.d) * float(small_nibble(b.qs, e)) + half_to_float(b.m);
    }
    case DType::Q5_0: {
      const auto& b = as_block<BlockQ5_0>(bytes);
      return half_to_float(b.d) * float((small_nibble(b.qs, e) | fifth(b.qh, e)) - 16);
    }
    case DType::Q5_1: {
      const auto& b = as_block<BlockQ5_1>(bytes);
      return half_to_float(b.d) * float(small_nibble(b.qs, e) | fifth(b.qh, e)) + half_to_float(b.m);
    }
    case DType::IQ4_NL: {
      const auto& b = as_block<BlockIQ4_NL>(bytes);
      return half_to_float(b.d) * float(kIq4Values[size_t(small_nibble(b.qs, e))]);
    }
    case DType::Q2_K: {
      const auto& b = as_block<BlockQ2_K>(bytes);
      const int q = b.qs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3;
      return half_to_float(b.d) * float(b.scales[e / 16] & 15) * float(q) -
             half_to_float(b.dmin) * float(b.scales[e / 16] >> 4);
    }
    case DType::Q3_K: {
      const auto& b = as_block<BlockQ3_K>(bytes);
      const int q = (b.qs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3) | (b.hmask[e % 32] >> (e / 32) & 1) << 2;
      return half_to_float(b.d) * float(q3_k_scale(b.scales, e / 16)) * float(q - 4);
    }
    case DType::Q4_K: {
      const auto& b = as_block<BlockQ4_K>(bytes);
      const ScaleMin s = k_scale_min(b.scales, e / 32);
      const int q = b.qs[e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15;
      return half_to_float(b.d) * float(s.scale) * float(q) - half_to_float(b.dmin) * float(s.min);
    }
    case DType::Q5_K: {
      const auto& b = as_block<BlockQ5_K>(bytes);
      const ScaleMin s = k_scale_min(b.scales, e / 32);
      const int q = (b.qs[e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15) | (b.qh[e % 32] >> (e / 32) & 1) << 4;
      return half_to_float(b.d) * float(s.scale) * float(q) - half_to_float(b.dmin) * float(s.min);
    }
    case DType::Q6_K: {
      const auto& b = as_block<BlockQ6_K>(bytes);
      const int q = (b.ql[e / 128 * 64 + e % 64] >> (e / 64 % 2 * 4) & 15) |
                    (b.qh[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3) << 4;
      return half_to_float(b.d) * float(b.scales[e / 16]) * float(q - 32);
    }
    case DType::IQ4_XS: {
      const auto& b = as_block<BlockIQ4_XS>(bytes);
      return half_to_float(b.d) * float(iq4_xs_scale(b, e / 32)) *
             float(kIq4Values[size_t(small_nibble(b.qs + e / 32 * 16, e % 32))]);
    }
    case DType::MXFP4: {
      const auto& b = as_block<BlockMXFP4>(bytes);
      return e8m0_half(b.e) * float(kFp4Values[size_t(small_nibble(b.qs, e))]);
    }
    default:
      return 0;
  }
}

struct ReferenceWeights {
  std::vector<uint8_t> file;  // n rows in file format
  std::vector<float> values;  // [n, k]
};

inline ReferenceWeights random_weights(DType f, int64_t n, int64_t k, uint64_t seed) {
  ReferenceWeights w;
  const BlockShape shape = block_shape(f);
  const size_t blocks = static_cast<size_t>(n * k / shape.elements);
  w.file.resize(blocks * static_cast<size_t>(shape.bytes));
  w.values.resize(static_cast<size_t>(n * k));
  for (size_t b = 0; b < blocks; ++b) {
    uint8_t* at = w.file.data() + b * static_cast<size_t>(shape.bytes);
    if (shape.elements > 1) {
      random_block(f, at, seed * 1000003 + b);
      for (int e = 0; e < shape.elements; ++e) {
        w.values[b * static_cast<size_t>(shape.elements) + static_cast<size_t>(e)] = block_value(f, at, e);
      }
      continue;
    }
    const float v = random_float(seed, b, 0.05f);
    if (f == DType::BF16) {
      const __nv_bfloat16 rounded = __float2bfloat16(v);
      std::memcpy(at, &rounded, 2);
      w.values[b] = __bfloat162float(rounded);
    } else {
      const uint16_t rounded = float_to_half(v);
      std::memcpy(at, &rounded, 2);
      w.values[b] = half_to_float(rounded);
    }
  }
  return w;
}

}  // namespace millrace
