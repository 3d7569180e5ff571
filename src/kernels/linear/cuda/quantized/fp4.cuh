// MXFP4 in units. The bits of an E2M1 number, placed at the sign, at the low bits of the exponent and at the first one
// of the mantissa of a bf16, are the number times 2^-126, subnormal or not. So decoding needs no table and leaves no
// offset: shifts and masks pick pairs, and one exact product applies their scale.
//
// Four pairs of 8 bits fill a word. The first three lie in it as in a bf16, moved, and take one shift each. The bits
// that remain are too scattered for that: the last pair is the exclusive or of two shifted words, and the stored bits
// already contain those of the other pairs that it picks up.
//
// Exponents are stored such that a scale is a bf16, too, and a weight comes out times 2^-32, in the middle of the
// range. Scales above 2^33 become 2^33, including that of exponent 255, which stands for NaN: no model has them. With
// scales below 2^-100 the smallest weights lose bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace millrace {

inline constexpr uint32_t kFp4Mask = 0x81c081c0u;  // of a pair

// Pairs times 2^-126. Elements 2 p and 2 p + 1 are the low and the high half of pair p.
__device__ __forceinline__ void decode_fp4(uint32_t word, uint32_t (&pairs)[4]) {
  pairs[0] = word & kFp4Mask;
  pairs[1] = word << 4 & kFp4Mask;
  pairs[2] = __funnelshift_r(word, word, 6) & kFp4Mask;
  pairs[3] = (word << 6 ^ word >> 2) & kFp4Mask;
}

// The word of eight numbers.
__device__ __forceinline__ uint32_t encode_fp4(const uint32_t (&q)[8]) {
  uint32_t pairs[4], decoded[4];
  for (int p = 0; p < 4; ++p) {
    const uint32_t low = q[2 * p], high = q[2 * p + 1];
    pairs[p] = (low & 8) << 12 | (low & 7) << 6 | (high & 8) << 28 | (high & 7) << 22;
  }
  uint32_t word = pairs[0] | pairs[1] >> 4 | __funnelshift_l(pairs[2], pairs[2], 6);
  for (int i = 0; i < 4; ++i) {  // flips the bits of the last pair that are wrong; a sign also affects the next byte
    decode_fp4(word, decoded);
    const uint32_t wrong = pairs[3] ^ decoded[3];
    word ^= (wrong >> 6 & 0x02030203u) | (wrong & 0x01000100u) << 2;
  }
  return word;
}

// The stored byte of an E8M0 scale 2^(e - 127): the exponent of the scale times 2^94.
__device__ __forceinline__ uint8_t encode_fp4_scale(uint32_t e) { return static_cast<uint8_t>(min(e, 160u) + 94); }

__device__ __forceinline__ float fp4_scale(uint32_t stored) { return __uint_as_float(stored << 23); }

// Scale i, a compile-time constant, of four: as a pair of equal bf16.
__device__ __forceinline__ uint32_t fp4_scale_pair(uint32_t stored, int i) {
  return __byte_perm(stored, 0, 0x4040u + 0x0101u * i) << 7;
}

// Weights times 2^-32.
__device__ __forceinline__ void scale_fp4(uint32_t (&pairs)[4], uint32_t scale_pair) {
#pragma unroll
  for (uint32_t& pair : pairs) {
    const __nv_bfloat162 v =
        __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), reinterpret_cast<const __nv_bfloat162&>(scale_pair));
    pair = reinterpret_cast<const uint32_t&>(v);
  }
}

}  // namespace millrace
