// A lane's share of a packed unit in registers, and its decoding into tensor-core operands.
//
// Decoding needs no conversion: the bits of a small integer q, placed below the exponent of 128 (bf16) or 1024 (f16),
// represent 128 + q or 1024 + q. The product subtracts the offset (see mma.cuh), so decoding costs one shift and one
// lop3 per pair.
#pragma once

#include "kernels/linear/cuda/device.cuh"
#include "kernels/linear/cuda/quantized/fp4.cuh"
#include "kernels/linear/cuda/quantized/unit.cuh"

namespace millrace {

__device__ __forceinline__ uint32_t word(const uint4& v, int i) {  // i is a compile-time constant
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ __forceinline__ uint32_t and_or(uint32_t value, uint32_t mask, uint32_t bits) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(value), "r"(mask), "r"(bits));  // (a & b) | c
  return out;
}

__device__ __forceinline__ uint32_t shift_right(uint32_t v, int by) { return by >= 0 ? v >> by : v << -by; }

// One half of a pair of f16 as a float.
__device__ __forceinline__ float half_bits(uint32_t pair, int high) {
  const __half2 h = *reinterpret_cast<const __half2*>(&pair);
  return high ? __high2float(h) : __low2float(h);
}

// Byte i of v as a float: placed below the exponent of 2^23, then 2^23 is subtracted.
__device__ __forceinline__ float byte_float(uint32_t v, int i) {
  return __uint_as_float(__byte_perm(v, 0x4b000000u, 0x7440u + i)) - 8388608.f;
}

// Maps eight 4-bit indices to the levels of IQ4 plus their stored zero point, as two words of bytes.
__device__ __forceinline__ void look_up_levels(uint32_t indices, uint32_t (&bytes)[2]) {
  // -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113, lowest byte first
  constexpr uint32_t kLevels[4] = {0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u};
  const uint32_t inside = indices & 0x77777777u;
  const uint32_t pick = and_or(indices >> 1, 0x44444444u, 0x32103210u);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t low = __byte_perm(kLevels[0], kLevels[1], inside >> 16 * i);
    const uint32_t high = __byte_perm(kLevels[2], kLevels[3], inside >> 16 * i);
    bytes[i] = __byte_perm(low, high, pick >> 16 * i);
  }
}

// Fifth and sixth bits, and scales: small, and needed all at once.
template <DType kFormat>
struct UnitMeta {
  using U = Unit<kFormat>;
  static constexpr int kHigh = U::kSixBits ? 2 : U::kFifthBit ? 1 : 0;
  uint4 high[kHigh > 0 ? kHigh : 1];
  uint4 scale[2][U::kPairs ? 2 : 1];  // of rows g and g + 8
  uint32_t unit_scale[2];             // Q6_K

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
#pragma unroll
    for (int i = 0; i < kHigh; ++i) high[i] = load_stream(unit + U::kHigh + (i * 32 + lane) * 16);
    load_scales(
        unit, lane, [](const uint8_t* at) { return load_stream(at); }, [](const auto* at) { return __ldg(at); });
  }
  __device__ __forceinline__ void load_shared_scales(const uint8_t* unit, int lane) {
    load_scales(
        unit, lane, [](const uint8_t* at) { return *reinterpret_cast<const uint4*>(at); },
        [](const auto* at) { return *at; });
  }

 private:
  // `sixteen`, `few`: read 16 bytes, and a small number.
  template <class Sixteen, class Few>
  __device__ __forceinline__ void load_scales(const uint8_t* unit, int lane, Sixteen sixteen, Few few) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      if constexpr (kFormat == DType::IQ4_XS || U::kFp4) {
        const uint2 header = few(reinterpret_cast<const uint2*>(unit + U::kScale + row * 8));
        scale[half][0] = {header.x, header.y, 0, 0};
      } else {
        scale[half][0] = sixteen(unit + U::kScale + row * 16);
        if constexpr (U::kPairs) scale[half][1] = sixteen(unit + U::kScale + 256 + row * 16);
        if constexpr (U::kSixBits) {
          unit_scale[half] = few(reinterpret_cast<const uint16_t*>(unit + U::kScale + 256) + row);
        }
      }
    }
  }
};

// The low bits of a lane's elements, in four quarters of two blocks, each refilled as soon as it is used up.
template <DType kFormat>
struct UnitFragment {
  using U = Unit<kFormat>;
  static constexpr int kQuarter = U::kBytes ? 2 : 1;
  uint4 low[4 * kQuarter];
  UnitMeta<kFormat> meta;

  // Loads from a unit in shared memory, without scales (see run_scales.cuh).
  __device__ __forceinline__ void load_bits(const uint8_t* unit, int lane) {
#pragma unroll
    for (int i = 0; i < 4 * kQuarter; ++i) low[i] = *reinterpret_cast<const uint4*>(unit + (i * 32 + lane) * 16);
#pragma unroll
    for (int i = 0; i < UnitMeta<kFormat>::kHigh; ++i) {
      meta.high[i] = *reinterpret_cast<const uint4*>(unit + U::kHigh + (i * 32 + lane) * 16);
    }
  }

  __device__ __forceinline__ void load_quarter(const uint8_t* unit, int lane, int quarter) {
#pragma unroll
    for (int i = quarter * kQuarter; i < (quarter + 1) * kQuarter; ++i)
      low[i] = load_stream(unit + (i * 32 + lane) * 16);
  }

  // The numbers of wide formats plus their stored zero point: bytes e = 0, 2, 1, 3 and 4, 6, 5, 7.
  __device__ __forceinline__ void stored_bytes(int block, int half, uint32_t (&bytes)[2]) const {
    if constexpr (U::kTable) {
      look_up_levels(word(low[block / 2], block % 2 * 2 + half), bytes);
    } else {
      bytes[0] = word(low[block], 2 * half);
      bytes[1] = word(low[block], 2 * half + 1);
    }
  }

  // Pairs of elements of block `block`, row g + 8 half. Elements of wide formats are sums of two numbers.
  __device__ __forceinline__ void decode(int block, int half, uint32_t (&pairs)[4], uint32_t (&more)[4]) const {
    if constexpr (U::kWide) {
      uint32_t bytes[2];
      stored_bytes(block, half, bytes);
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // 2 (u / 2) below the exponent of 256, u % 2 below that of 128
        const uint32_t b = bytes[p / 2];
        pairs[p] = and_or(b >> (8 * (p % 2) + 1), 0x007f007fu, 0x43804380u);
        more[p] = and_or(b >> 8 * (p % 2), 0x00010001u, 0x43004300u);
      }
    } else if constexpr (U::kFp4) {
      decode_fp4(word(low[block / 2], block % 2 * 2 + half), pairs);
    } else {
      const int w = block % 2 * 2 + half;
      const uint32_t nibbles = word(low[block / 2], w);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        pairs[p] = and_or(nibbles >> 4 * p, 0x000f000fu, 0x43004300u);
        if constexpr (U::kFifthBit) {
          pairs[p] = and_or(shift_right(word(meta.high[0], block / 2), 4 * w + p - 4), 0x00100010u, pairs[p]);
        }
        if constexpr (U::kSixBits) {
          pairs[p] =
              and_or(shift_right(word(meta.high[block / 4], block % 4), 8 * half + 2 * p - 4), 0x00300030u, pairs[p]);
        }
      }
    }
  }

  // Weights of a block of MXFP4 times 2^-32.
  __device__ __forceinline__ void decode_scaled(int block, int half, uint32_t (&pairs)[4]) const {
    static_assert(U::kFp4);
    decode_fp4(word(low[block / 2], block % 2 * 2 + half), pairs);
    scale_fp4(pairs, fp4_scale_pair(word(meta.scale[half][0], block / 4), block % 4));
  }

  // The same as pairs of f16, which hold more bits: an element is 1024 plus its stored number u. In odd pairs of
  // formats that are not wide it is 1024 + 16 u, since their bits stay in place; the caller then divides x by 16.
  // MXFP4 stays bf16.
  __device__ __forceinline__ void decode_half(int block, int half, uint32_t (&pairs)[4]) const {
    if constexpr (U::kFp4) {
      decode_fp4(word(low[block / 2], block % 2 * 2 + half), pairs);
    } else if constexpr (U::kWide) {
      uint32_t bytes[2];
      stored_bytes(block, half, bytes);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        pairs[p] = __byte_perm(bytes[p / 2], 0x64646464u, p % 2 == 0 ? 0x4240 : 0x4341);
      }
    } else {
      const int w = block % 2 * 2 + half;
      const uint32_t nibbles = word(low[block / 2], w);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int left = p % 2 * 4;  // shift left of its final position
        pairs[p] = and_or(nibbles >> (4 * p - left), 0x000f000fu << left, 0x64006400u);
        if constexpr (U::kFifthBit) {
          const uint32_t high = word(meta.high[0], block / 2);
          pairs[p] = and_or(shift_right(high, 4 * w + p - 4 - left), 0x00100010u << left, pairs[p]);
        }
        if constexpr (U::kSixBits) {
          const uint32_t high = word(meta.high[block / 4], block % 4);
          pairs[p] = and_or(shift_right(high, 8 * half + 2 * p - 4 - left), 0x00300030u << left, pairs[p]);
        }
      }
    }
  }

  // Scale of block `block` (Q6_K: of its 16 columns from 16 part on) of row g + 8 half, and its additive minimum.
  __device__ __forceinline__ float2 scale_minimum(int block, int part, int half) const {
    const uint4 s = meta.scale[half][0];
    if constexpr (U::kPairs) {
      const uint32_t pair = word(meta.scale[half][block / 4], block % 4);
      return {half_bits(pair, 0), half_bits(pair, 1)};
    } else if constexpr (U::kSuper) {
      uint32_t scales, minima;
      if (block < 4) {
        scales = s.y & 0x3f3f3f3fu;
        minima = s.z & 0x3f3f3f3fu;
      } else {
        scales = and_or(s.y >> 2, 0x30303030u, s.w & 0x0f0f0f0fu);
        minima = and_or(s.z >> 2, 0x30303030u, s.w >> 4 & 0x0f0f0f0fu);
      }
      return {half_bits(s.x, 0) * byte_float(scales, block % 4), -half_bits(s.x, 1) * byte_float(minima, block % 4)};
    } else if constexpr (U::kSixBits) {
      const int at = 2 * block + part;
      return {half_bits(meta.unit_scale[half], 0) * (byte_float(word(s, at / 4) ^ 0x80808080u, at % 4) - 128.f), 0.f};
    } else if constexpr (kFormat == DType::IQ4_XS) {
      const uint32_t low4 = s.y >> 4 * block & 15, high2 = s.x >> (16 + 2 * block) & 3;
      return {half_bits(s.x, 0) * (byte_float(low4 | high2 << 4, 0) - 32.f), 0.f};
    } else if constexpr (U::kFp4) {
      return {fp4_scale(word(s, block / 4) >> 8 * (block % 4) & 255), 0.f};
    } else {
      return {half_bits(word(s, block / 2), block % 2), 0.f};
    }
  }
};

}  // namespace millrace
