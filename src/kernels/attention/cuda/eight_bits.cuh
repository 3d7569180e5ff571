// Keys and values stored in 8 bits: their bytes, and eight elements at a time as f16, which holds every number of both
// formats with at most one rounding to 11 bits.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace millrace {

// Plain: 16 bits, in the type of the products.
enum class KvStore : uint8_t { Plain, Q8, Fp8 };

template <KvStore kStore>
__host__ __device__ constexpr int stored_row_bytes(int head_dim) {
  return kStore == KvStore::Q8 ? head_dim / 32 * 34 : kStore == KvStore::Fp8 ? head_dim : 2 * head_dim;
}

__device__ inline uint32_t half2_bits(__half2 x) { return reinterpret_cast<const uint32_t&>(x); }
__device__ inline __half2 half2_of(uint32_t bits) { return reinterpret_cast<const __half2&>(bits); }

// Four signed bytes, each 1152 less than the f16 that its bits, moved to unsigned, are the end of.
__device__ inline void expand_q8(uint32_t quants, __half2 scale, uint32_t& low, uint32_t& high) {
  constexpr uint32_t kBegin = 0x64646464, kShift = 0x64806480;
  const uint32_t moved = quants ^ 0x80808080;
  low = half2_bits(__hmul2(__hsub2(half2_of(__byte_perm(moved, kBegin, 0x4140)), half2_of(kShift)), scale));
  high = half2_bits(__hmul2(__hsub2(half2_of(__byte_perm(moved, kBegin, 0x4342)), half2_of(kShift)), scale));
}

// Eight elements of a block. Numbers beyond the range of f16 need a scale above 515.5, which is reduced to that: the
// products must stay finite.
__device__ inline uint4 expand_q8(uint32_t first, uint32_t second, uint16_t scale_bits) {
  const __half2 scale = __hmin2(__half2half2(__ushort_as_half(scale_bits)), __half2half2(__float2half(515.5f)));
  uint4 out;
  expand_q8(first, scale, out.x, out.y);
  expand_q8(second, scale, out.z, out.w);
  return out;
}

__device__ inline uint32_t expand_fp8(uint32_t pair) {
  const __half2_raw x = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return half2_bits(__half2(x));
}
__device__ inline uint4 expand_fp8(uint2 bytes) {
  return {expand_fp8(bytes.x & 0xffff), expand_fp8(bytes.x >> 16), expand_fp8(bytes.y & 0xffff),
          expand_fp8(bytes.y >> 16)};
}

// The nearest E4M3 numbers of two f16, saturated.
__device__ inline uint32_t to_fp8(uint32_t pair) {
  return __nv_cvt_halfraw2_to_fp8x2(static_cast<__half2_raw>(half2_of(pair)), __NV_SATFINITE, __NV_E4M3);
}

__device__ inline uint32_t load_shared(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

// Rows in shared memory as they are stored. Blocks of Q8_0 are aligned to two bytes.
template <KvStore kStore, int kDim>
struct StoredRows {
  static constexpr int kRowBytes = stored_row_bytes<kStore>(kDim);

  __device__ static uint4 eight(uint32_t rows, int row, int piece) {
    if constexpr (kStore == KvStore::Fp8) {
      uint2 bytes;
      asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                   : "=r"(bytes.x), "=r"(bytes.y)
                   : "r"(rows + row * kRowBytes + piece * 8)
                   : "memory");
      return expand_fp8(bytes);
    } else {
      const uint32_t block = rows + row * kRowBytes + piece / 4 * 34, quants = block + 2 + piece % 4 * 8;
      const uint32_t words = quants & ~3u, order = quants % 4 == 0 ? 0x3210 : 0x5432;
      const uint32_t a = load_shared(words), b = load_shared(words + 4), c = load_shared(words + 8);
      uint16_t scale;
      asm volatile("ld.shared.b16 %0, [%1];" : "=h"(scale) : "r"(block) : "memory");
      return expand_q8(__byte_perm(a, b, order), __byte_perm(b, c, order), scale);
    }
  }
};

}  // namespace millrace
