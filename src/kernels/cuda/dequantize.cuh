// Decodes eight consecutive elements of a row of any format to f32: the GPU's counterpart of tensor/dequantize.cpp. A
// vector of eight never crosses a group with a common scale.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/small_floats.cuh"
#include "tensor/blocks.h"
#include "tensor/dtype.h"

namespace millrace {

__device__ inline float half_bits(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }

__device__ inline int iq4_value(int q) {
  // kIq4Values, one byte each.
  constexpr uint32_t kLow[4] = {0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u};
  return static_cast<int8_t>(kLow[q >> 2] >> (8 * (q & 3)));
}

// Plain rows can have any length: elements beyond n are zero.
template <class Plain>
struct PlainDecoder {
  static __device__ void some(const std::byte* row, int64_t i, int64_t n, float (&out)[8]) {
    if (i + 8 <= n) return Plain::eight(row, i, out);
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = i + e < n ? Plain::one(row, i + e) : 0;
  }
};

// Quantized rows consist of whole blocks.
template <class Quantized>
struct BlockDecoder {
  static __device__ void some(const std::byte* row, int64_t i, int64_t, float (&out)[8]) {
    Quantized::eight(row, i, out);
  }
};

template <DType F>
struct Decoder;

template <>
struct Decoder<DType::F32> : PlainDecoder<Decoder<DType::F32>> {
  static __device__ float one(const std::byte* row, int64_t i) {
    const float x = reinterpret_cast<const float*>(row)[i];
    return x;
  }
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = one(row, i + e);
  }
};

template <>
struct Decoder<DType::F16> : PlainDecoder<Decoder<DType::F16>> {
  static __device__ float one(const std::byte* row, int64_t i) {
    const uint16_t x = reinterpret_cast<const uint16_t*>(row)[i];
    return half_bits(x);
  }
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = one(row, i + e);
  }
};

template <>
struct Decoder<DType::BF16> : PlainDecoder<Decoder<DType::BF16>> {
  static __device__ float one(const std::byte* row, int64_t i) {
    const uint16_t x = reinterpret_cast<const uint16_t*>(row)[i];
    return __uint_as_float(static_cast<uint32_t>(x) << 16);
  }
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = one(row, i + e);
  }
};

// The block that holds element i.
template <class Block>
__device__ const Block& block_of(const std::byte* row, int64_t i) {
  return reinterpret_cast<const Block*>(row)[i / Block::kElements];
}

template <>
struct Decoder<DType::Q8_0> : BlockDecoder<Decoder<DType::Q8_0>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    const auto& b = block_of<BlockQ8_0>(row, i);
    const float d = half_bits(b.d);
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = d * float(b.qs[i % 32 + e]);
  }
};

// Blocks of 32 four-bit or five-bit numbers: d * (q - offset) + m, or a value from a table.
template <class Block, class Level>
__device__ void small_block(const std::byte* row, int64_t i, float (&out)[8], Level level) {
  const Block& b = block_of<Block>(row, i);
  const int first = static_cast<int>(i % 32), shift = first / 16 * 4;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    int q = b.qs[first % 16 + e] >> shift & 15;
    if constexpr (requires { b.qh; }) q |= (b.qh[first / 8] >> e & 1) << 4;
    out[e] = level(b, q);
  }
}

template <>
struct Decoder<DType::Q4_0> : BlockDecoder<Decoder<DType::Q4_0>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    small_block<BlockQ4_0>(row, i, out, [](const auto& b, int q) { return half_bits(b.d) * float(q - 8); });
  }
};
template <>
struct Decoder<DType::Q4_1> : BlockDecoder<Decoder<DType::Q4_1>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    small_block<BlockQ4_1>(row, i, out,
                           [](const auto& b, int q) { return half_bits(b.d) * float(q) + half_bits(b.m); });
  }
};
template <>
struct Decoder<DType::Q5_0> : BlockDecoder<Decoder<DType::Q5_0>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    small_block<BlockQ5_0>(row, i, out, [](const auto& b, int q) { return half_bits(b.d) * float(q - 16); });
  }
};
template <>
struct Decoder<DType::Q5_1> : BlockDecoder<Decoder<DType::Q5_1>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    small_block<BlockQ5_1>(row, i, out,
                           [](const auto& b, int q) { return half_bits(b.d) * float(q) + half_bits(b.m); });
  }
};
template <>
struct Decoder<DType::IQ4_NL> : BlockDecoder<Decoder<DType::IQ4_NL>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    small_block<BlockIQ4_NL>(row, i, out, [](const auto& b, int q) { return half_bits(b.d) * float(iq4_value(q)); });
  }
};

template <>
struct Decoder<DType::MXFP4> : BlockDecoder<Decoder<DType::MXFP4>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    small_block<BlockMXFP4>(row, i, out, [](const auto& b, int q) { return half_e8m0(b.e) * float(fp4_value(q)); });
  }
};
template <>
struct Decoder<DType::F8_E4M3> : BlockDecoder<Decoder<DType::F8_E4M3>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    const auto& b = block_of<BlockF8_E4M3>(row, i);
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = b.d * e4m3_value(b.qs[i % 32 + e]);
  }
};

__device__ inline int two_bits(const uint8_t* qs, int e) { return qs[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3; }

template <>
struct Decoder<DType::Q2_K> : BlockDecoder<Decoder<DType::Q2_K>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    const auto& b = block_of<BlockQ2_K>(row, i);
    const int first = static_cast<int>(i % 256), packed = b.scales[first / 16];
    const float scale = half_bits(b.d) * float(packed & 15), min = half_bits(b.dmin) * float(packed >> 4);
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = scale * float(two_bits(b.qs, first + e)) - min;
  }
};

template <>
struct Decoder<DType::Q3_K> : BlockDecoder<Decoder<DType::Q3_K>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    const auto& b = block_of<BlockQ3_K>(row, i);
    const int first = static_cast<int>(i % 256), group = first / 16;
    const int low = b.scales[group % 8] >> (group / 8 * 4) & 15, high = b.scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const float scale = half_bits(b.d) * float((low | high << 4) - 32);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int q = two_bits(b.qs, first + e) | (b.hmask[(first + e) % 32] >> (first / 32) & 1) << 2;
      out[e] = scale * float(q - 4);
    }
  }
};

// Six-bit scale and minimum of Q4_K and Q5_K, as in k_scale_min.
__device__ inline float2 scale_and_min(const uint8_t* packed, int group, uint16_t d, uint16_t dmin) {
  int scale = packed[group & 3], min = packed[(group & 3) + 4];
  if (group < 4) {
    scale &= 63, min &= 63;
  } else {
    const int both = packed[group + 4];
    scale = (both & 15) | scale >> 6 << 4, min = both >> 4 | min >> 6 << 4;
  }
  return {half_bits(d) * float(scale), half_bits(dmin) * float(min)};
}

template <>
struct Decoder<DType::Q4_K> : BlockDecoder<Decoder<DType::Q4_K>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    const auto& b = block_of<BlockQ4_K>(row, i);
    const int first = static_cast<int>(i % 256), group = first / 32, at = first / 64 * 32 + first % 32;
    const float2 s = scale_and_min(b.scales, group, b.d, b.dmin);
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = s.x * float(b.qs[at + e] >> (group % 2 * 4) & 15) - s.y;
  }
};

template <>
struct Decoder<DType::Q5_K> : BlockDecoder<Decoder<DType::Q5_K>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    const auto& b = block_of<BlockQ5_K>(row, i);
    const int first = static_cast<int>(i % 256), group = first / 32, at = first / 64 * 32 + first % 32;
    const float2 s = scale_and_min(b.scales, group, b.d, b.dmin);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int q = (b.qs[at + e] >> (group % 2 * 4) & 15) | (b.qh[first % 32 + e] >> group & 1) << 4;
      out[e] = s.x * float(q) - s.y;
    }
  }
};

template <>
struct Decoder<DType::Q6_K> : BlockDecoder<Decoder<DType::Q6_K>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    const auto& b = block_of<BlockQ6_K>(row, i);
    const int first = static_cast<int>(i % 256);
    const float scale = half_bits(b.d) * float(b.scales[first / 16]);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const int low = b.ql[first / 128 * 64 + first % 64 + e] >> (first / 64 % 2 * 4) & 15;
      out[e] = scale * float((low | two_bits(b.qh, first + e) << 4) - 32);
    }
  }
};

template <>
struct Decoder<DType::IQ4_XS> : BlockDecoder<Decoder<DType::IQ4_XS>> {
  static __device__ void eight(const std::byte* row, int64_t i, float (&out)[8]) {
    const auto& b = block_of<BlockIQ4_XS>(row, i);
    const int first = static_cast<int>(i % 32), group = static_cast<int>(i % 256 / 32);
    const int low = b.scales_l[group / 2] >> (group % 2 * 4) & 15, high = b.scales_h >> (group * 2) & 3;
    const float scale = half_bits(b.d) * float((low | high << 4) - 32);
#pragma unroll
    for (int e = 0; e < 8; ++e)
      out[e] = scale * float(iq4_value(b.qs[group * 16 + first % 16 + e] >> (first / 16 * 4) & 15));
  }
};

// Calls f.template operator()<FORMAT>().
template <class F>
void with_format(DType format, F f) {
  switch (format) {
    case DType::F32:
      return f.template operator()<DType::F32>();
    case DType::F16:
      return f.template operator()<DType::F16>();
    case DType::BF16:
      return f.template operator()<DType::BF16>();
    case DType::Q8_0:
      return f.template operator()<DType::Q8_0>();
    case DType::Q4_0:
      return f.template operator()<DType::Q4_0>();
    case DType::Q4_1:
      return f.template operator()<DType::Q4_1>();
    case DType::Q5_0:
      return f.template operator()<DType::Q5_0>();
    case DType::Q5_1:
      return f.template operator()<DType::Q5_1>();
    case DType::Q2_K:
      return f.template operator()<DType::Q2_K>();
    case DType::Q3_K:
      return f.template operator()<DType::Q3_K>();
    case DType::Q4_K:
      return f.template operator()<DType::Q4_K>();
    case DType::Q5_K:
      return f.template operator()<DType::Q5_K>();
    case DType::Q6_K:
      return f.template operator()<DType::Q6_K>();
    case DType::IQ4_NL:
      return f.template operator()<DType::IQ4_NL>();
    case DType::IQ4_XS:
      return f.template operator()<DType::IQ4_XS>();
    case DType::MXFP4:
      return f.template operator()<DType::MXFP4>();
    case DType::F8_E4M3:
      return f.template operator()<DType::F8_E4M3>();
  }
}

}  // namespace millrace
