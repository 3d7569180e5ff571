// Warpgroup products (four warps) on Hopper's tensor cores, and the bulk copies and barriers that feed them.
//
// Matrices in shared memory are panels of 64 columns: rows of 128 bytes whose 16-byte pieces are permuted by the row
// index modulo eight. Accumulators are laid out as in mma.sync: each warp has 16 rows, and c[4 n + i] is c[i] of mma()
// for columns 8 n .. 8 n + 7.
#pragma once

#include "kernels/attention/cuda/mma.cuh"

namespace millrace {

#define MR_OUT8(c, i)                                                                                         \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
      "+f"(c[i + 7])
#define MR_OUT32(c) MR_OUT8(c, 0), MR_OUT8(c, 8), MR_OUT8(c, 16), MR_OUT8(c, 24)
#define MR_OUT64(c) MR_OUT32(c), MR_OUT8(c, 32), MR_OUT8(c, 40), MR_OUT8(c, 48), MR_OUT8(c, 56)

// c[64 x 128] = (add ? c : 0) + a[64 x 16] b[128 x 16]^T: a in registers, b in shared memory, K-major.
template <class T>
__device__ inline void warpgroup_multiply(float (&c)[64], const uint32_t (&a)[4], uint64_t b, int add);
template <>
__device__ inline void warpgroup_multiply<__nv_bfloat16>(float (&c)[64], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
      : MR_OUT64(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <>
__device__ inline void warpgroup_multiply<__half>(float (&c)[64], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"
      : MR_OUT64(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// c[64 x N] += a[64 x 16] b[16 x N]: a in registers, b in shared memory, N-major.
template <class T>
__device__ inline void warpgroup_add(float (&c)[64], const uint32_t (&a)[4], uint64_t b);
template <class T>
__device__ inline void warpgroup_add(float (&c)[32], const uint32_t (&a)[4], uint64_t b);
template <>
__device__ inline void warpgroup_add<__nv_bfloat16>(float (&c)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;}"
      : MR_OUT64(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
template <>
__device__ inline void warpgroup_add<__half>(float (&c)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;}"
      : MR_OUT64(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
template <>
__device__ inline void warpgroup_add<__nv_bfloat16>(float (&c)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
      : MR_OUT32(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}
template <>
__device__ inline void warpgroup_add<__half>(float (&c)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
      : MR_OUT32(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}

#undef MR_OUT8
#undef MR_OUT32
#undef MR_OUT64

__device__ inline void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Prevents the compiler from moving accesses to accumulators across an asynchronous product.
template <int kCount>
__device__ inline void hold(float (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

// Descriptor of a panel. `next_panel`: bytes between panels of 64 columns, for N-major operands.
__device__ inline uint64_t panel_descriptor(uint32_t address, uint32_t next_panel = 16) {
  constexpr uint64_t kEightRows = 1024 >> 4, kPermuted128 = 1;
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(next_panel >> 4) << 16 |
         kEightRows << 32 | kPermuted128 << 62;
}

__device__ inline uint64_t moved_by(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

// A barrier in shared memory that counts arrivals of threads and bytes of bulk copies.
class CopyBarrier {
 public:
  __device__ explicit CopyBarrier(uint32_t address) : address_(address) {}
  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address_), "r"(arrivals) : "memory");
  }
  __device__ void expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address_), "r"(bytes) : "memory");
  }
  __device__ void arrive() const { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address_) : "memory"); }
  __device__ void wait(int parity) const {
    asm volatile(
        "{\n.reg .pred done;\nretry:\n"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@done bra finished;\nbra retry;\nfinished:\n}" ::"r"(address_),
        "r"(parity)
        : "memory");
  }
  __device__ uint32_t address() const { return address_; }

 private:
  uint32_t address_;
};

__device__ inline void prefetch_map(const void* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// Starts the copy of a box of a matrix to shared memory; elements outside the matrix become zeros.
__device__ inline void copy_box(uint32_t to, const void* map, int column, int row, const CopyBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(map), "r"(column), "r"(row), "r"(barrier.address())
      : "memory");
}

// Makes ordinary writes to shared memory visible to the tensor cores. Call before the barrier that hands them over.
__device__ inline void publish_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace millrace
