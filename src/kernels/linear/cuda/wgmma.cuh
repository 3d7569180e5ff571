// Hopper's tensor copies (TMA) and warpgroup matrix products.
#pragma once

#include <cuda.h>

#include "kernels/cuda/wgmma_operands.cuh"
#include "kernels/linear/cuda/barrier.cuh"

namespace millrace {

// Copies the box at element (x, y) of the tensor into shared memory; `barrier` counts its bytes.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, int x, int y, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(shared_address(barrier))
      : "memory");
}

// The same of a stack of matrices; z: which one.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, int x, int y, int z, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}

// The box of one matrix with an L2 eviction policy.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, int x, int y, uint64_t* barrier,
                                         uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Descriptor of rows of 64 16-bit elements in shared memory, as copy_box stores them with the 128-byte swizzle: groups
// of eight rows are 1024 bytes apart.
__device__ __forceinline__ uint64_t matrix_descriptor(const void* shared) {
  const uint64_t address = (shared_address(shared) & 0x3ffffu) >> 4;
  return address | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// d (+)= a b: a is 64 x 16 of weights, b 16 x kTokens, both K-major in shared memory. Each warp holds 16 rows of d,
// laid out like mma.sync tiles, four registers per eight tokens. `add` = 0 starts a new sum.
template <class T, int kTokens>
struct WarpgroupProduct;

// clang-format off
template <>
struct WarpgroupProduct<__nv_bfloat16, 8> {
  static __device__ __forceinline__ void run(float (&d)[4], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {" MR_SUMS_TEXT_4 "}, %4, %5, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_4
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__nv_bfloat16, 16> {
  static __device__ __forceinline__ void run(float (&d)[8], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {" MR_SUMS_TEXT_8 "}, %8, %9, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_8
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__nv_bfloat16, 32> {
  static __device__ __forceinline__ void run(float (&d)[16], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" MR_SUMS_TEXT_16 "}, %16, %17, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_16
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__nv_bfloat16, 64> {
  static __device__ __forceinline__ void run(float (&d)[32], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" MR_SUMS_TEXT_32 "}, %32, %33, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_32
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__nv_bfloat16, 128> {
  static __device__ __forceinline__ void run(float (&d)[64], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" MR_SUMS_TEXT_64 "}, %64, %65, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_64
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__nv_bfloat16, 256> {
  static __device__ __forceinline__ void run(float (&d)[128], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" MR_SUMS_TEXT_128 "}, %128, %129, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_128
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__half, 8> {
  static __device__ __forceinline__ void run(float (&d)[4], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {" MR_SUMS_TEXT_4 "}, %4, %5, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_4
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__half, 16> {
  static __device__ __forceinline__ void run(float (&d)[8], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {" MR_SUMS_TEXT_8 "}, %8, %9, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_8
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__half, 32> {
  static __device__ __forceinline__ void run(float (&d)[16], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" MR_SUMS_TEXT_16 "}, %16, %17, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_16
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__half, 64> {
  static __device__ __forceinline__ void run(float (&d)[32], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" MR_SUMS_TEXT_32 "}, %32, %33, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_32
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__half, 128> {
  static __device__ __forceinline__ void run(float (&d)[64], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" MR_SUMS_TEXT_64 "}, %64, %65, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_64
        : "l"(a), "l"(b), "r"(add));
  }
};
template <>
struct WarpgroupProduct<__half, 256> {
  static __device__ __forceinline__ void run(float (&d)[128], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" MR_SUMS_TEXT_128 "}, %128, %129, p, 1, 1, 0, 0;\n}"
        : MR_SUMS_128
        : "l"(a), "l"(b), "r"(add));
  }
};
// clang-format on

}  // namespace millrace
