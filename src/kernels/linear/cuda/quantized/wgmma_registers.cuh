// Warpgroup products whose first operand, the weights, comes from registers, so that decoded weights go straight to the
// tensor cores.
#pragma once

#include "kernels/linear/cuda/wgmma.cuh"

namespace millrace {

// d += a b: a is 64 x 16 of bf16 weights, of which each warp holds 16 rows as an mma.sync fragment; b is 16 x kTokens,
// K-major in shared memory. d as in WarpgroupProduct.
template <int kTokens>
struct RegisterProduct;

// clang-format off
template <>
struct RegisterProduct<8> {
  static __device__ __forceinline__ void run(float (&d)[4], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {" MR_SUMS_TEXT_4 "}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
        : MR_SUMS_4
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <>
struct RegisterProduct<16> {
  static __device__ __forceinline__ void run(float (&d)[8], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" MR_SUMS_TEXT_8 "}, {%8,%9,%10,%11}, %12, 1, 1, 1, 0;"
        : MR_SUMS_8
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <>
struct RegisterProduct<32> {
  static __device__ __forceinline__ void run(float (&d)[16], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" MR_SUMS_TEXT_16 "}, {%16,%17,%18,%19}, %20, 1, 1, 1, 0;"
        : MR_SUMS_16
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <>
struct RegisterProduct<64> {
  static __device__ __forceinline__ void run(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" MR_SUMS_TEXT_32 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
        : MR_SUMS_32
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <>
struct RegisterProduct<128> {
  static __device__ __forceinline__ void run(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" MR_SUMS_TEXT_64 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 0;"
        : MR_SUMS_64
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
template <>
struct RegisterProduct<256> {
  static __device__ __forceinline__ void run(float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" MR_SUMS_TEXT_128 "}, {%128,%129,%130,%131}, %132, 1, 1, 1, 0;"
        : MR_SUMS_128
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
};
// clang-format on

}  // namespace millrace
