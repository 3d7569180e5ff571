// Warpgroup products (four warps) on Hopper's tensor cores, and the bulk copies and barriers that feed them.
//
// Matrices in shared memory are panels of 64 columns: rows of 128 bytes whose 16-byte pieces are permuted by the row
// index modulo eight. Accumulators are laid out as in mma.sync: each warp has 16 rows, and c[4 n + i] is c[i] of mma()
// for columns 8 n .. 8 n + 7.
#pragma once

#include "kernels/attention/cuda/mma.cuh"
#include "kernels/cuda/wgmma_operands.cuh"

namespace millrace {

// d[64 x N] = (add ? d : 0) + a[64 x 16] b[N x 16]^T: a in registers or in shared memory, b in shared memory, both
// K-major.
template <class T, int kSums>
__device__ void warpgroup_multiply(float (&d)[kSums], const uint32_t (&a)[4], uint64_t b, int add);
template <class T, int kSums>
__device__ void warpgroup_multiply(float (&d)[kSums], uint64_t a, uint64_t b, int add);
// d[64 x N] += a[64 x 16] b[16 x N]: a in registers, b in shared memory, N-major.
template <class T, int kSums>
__device__ void warpgroup_add(float (&d)[kSums], const uint32_t (&a)[4], uint64_t b);

// clang-format off
#define MR_PRODUCT(shape, sums, operands, add, ...) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " add ", 0; wgmma.mma_async.sync.aligned." shape \
               " {" MR_SUMS_TEXT_##sums "}, " operands ";}" : MR_SUMS_##sums : __VA_ARGS__)
#define MR_FOUR(a) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define MR_PRODUCTS(T, type) \
  template <> __device__ inline void warpgroup_multiply<T>(float (&d)[64], const uint32_t (&a)[4], uint64_t b, int add) { \
    MR_PRODUCT("m64n128k16.f32." type, 64, "{%64, %65, %66, %67}, %68, p, 1, 1, 0", "%69", MR_FOUR(a), "l"(b), "r"(add)); \
  } \
  template <> __device__ inline void warpgroup_multiply<T>(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int add) { \
    MR_PRODUCT("m64n64k16.f32." type, 32, "{%32, %33, %34, %35}, %36, p, 1, 1, 0", "%37", MR_FOUR(a), "l"(b), "r"(add)); \
  } \
  template <> __device__ inline void warpgroup_multiply<T>(float (&d)[32], uint64_t a, uint64_t b, int add) { \
    MR_PRODUCT("m64n64k16.f32." type, 32, "%32, %33, p, 1, 1, 0, 0", "%34", "l"(a), "l"(b), "r"(add)); \
  } \
  template <> __device__ inline void warpgroup_multiply<T>(float (&d)[64], uint64_t a, uint64_t b, int add) { \
    MR_PRODUCT("m64n128k16.f32." type, 64, "%64, %65, p, 1, 1, 0, 0", "%66", "l"(a), "l"(b), "r"(add)); \
  } \
  template <> __device__ inline void warpgroup_add<T>(float (&d)[32], const uint32_t (&a)[4], uint64_t b) { \
    MR_PRODUCT("m64n64k16.f32." type, 32, "{%32, %33, %34, %35}, %36, p, 1, 1, 1", "%37", MR_FOUR(a), "l"(b), "r"(1)); \
  } \
  template <> __device__ inline void warpgroup_add<T>(float (&d)[64], const uint32_t (&a)[4], uint64_t b) { \
    MR_PRODUCT("m64n128k16.f32." type, 64, "{%64, %65, %66, %67}, %68, p, 1, 1, 1", "%69", MR_FOUR(a), "l"(b), "r"(1)); \
  } \
  template <> __device__ inline void warpgroup_add<T>(float (&d)[128], const uint32_t (&a)[4], uint64_t b) { \
    MR_PRODUCT("m64n256k16.f32." type, 128, "{%128, %129, %130, %131}, %132, p, 1, 1, 1", "%133", MR_FOUR(a), "l"(b), \
               "r"(1)); \
  }
MR_PRODUCTS(__nv_bfloat16, "bf16.bf16")
MR_PRODUCTS(__half, "f16.f16")
#undef MR_PRODUCTS
#undef MR_FOUR
#undef MR_PRODUCT
// clang-format on

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

__device__ inline void copy_box(uint32_t to, const void* map, int column, int second, int third,
                                const CopyBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(map), "r"(column), "r"(second), "r"(third), "r"(barrier.address())
      : "memory");
}

// Makes ordinary writes to shared memory visible to the tensor cores. Call before the barrier that hands them over.
__device__ inline void publish_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace millrace
