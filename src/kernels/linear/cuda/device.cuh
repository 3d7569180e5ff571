// PTX wrappers that the linear kernels share: streaming loads, tensor-core products, clusters, programmatic dependent
// launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint64_t evict_normal_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Loads 16 bytes that are read once, without displacing other data from the caches.
__device__ __forceinline__ uint4 load_stream(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p), "l"(evict_first_policy()));
  return v;
}

// The same, or zeros if not `live`. Has no branch, so that many loads can be in flight.
__device__ __forceinline__ uint4 load_stream_if(const void* p, bool live, uint64_t policy) {
  uint4 v;
  asm volatile(
      "{\n.reg .pred live;\nsetp.ne.b32 live, %6, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@live ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;\n}"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "l"(policy), "r"(static_cast<int>(live)));
  return v;
}

// The same into shared memory, completed by cp.async.wait_all; zeros if not `live`. The empty asm hides the address
// from the compiler: it would fold uniform base and lane offset into one LDGSTS operand, which together with a cache
// hint is an illegal instruction (CUDA 13.0, sm_90a).
__device__ __forceinline__ void copy_stream_if(void* to, const void* from, bool live, uint64_t policy) {
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("" : "+r"(address));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(address), "l"(from),
               "r"(live ? 16 : 0), "l"(policy)
               : "memory");
}

// Loads four constants now rather than at their use. No kernel may write them.
__device__ __forceinline__ float4 load_early(const float* p) {
  float4 v;
  asm volatile("ld.global.nc.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}

// Loads 16 bytes that another kernel may just have written, so not through the read-only path.
__device__ __forceinline__ uint4 load_shared_input(const void* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// The same, or zeros if not `live`. Has no branch, so that many loads can be in flight.
__device__ __forceinline__ uint4 load_shared_input_if(const void* p, bool live) {
  uint4 v;
  asm volatile(
      "{\n.reg .pred live;\nsetp.ne.b32 live, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@live ld.global.v4.u32 {%0,%1,%2,%3}, [%4];\n}"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"(static_cast<int>(live))
      : "memory");
  return v;
}

// d += a b: a is a 16 x 16 tile of weights, b a 16 x 8 tile of tokens. Lane 4 g + t holds rows g and g + 8 of d for
// tokens 2 t and 2 t + 1.
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Two packed 16-bit numbers as floats.
template <class T>
__device__ __forceinline__ float2 unpack2(uint32_t v) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)};
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&v));
  }
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Waits until the preceding kernels are complete; returns at once in an ordinary launch.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From here on the next kernel may start its prologue.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ int cluster_rank() {
#if __CUDA_ARCH__ >= 900
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
#else
  return 0;
#endif
}

// Barrier for all threads of the cluster; makes earlier writes to shared memory visible to all of them.
__device__ __forceinline__ void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The same without memory ordering, which would cost a fence.
__device__ __forceinline__ void cluster_meet() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// The two halves of cluster_meet(), for work in between.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// Address of p in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ uint32_t cluster_address(const void* p, int rank) {
  uint32_t address = shared_address(p);
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
#endif
  return address;
}
// Stores to such an address; `barrier`, in the same block, counts the bytes that arrive.
__device__ __forceinline__ void send_cluster(uint32_t address, float2 v, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];" ::"r"(address),
               "f"(v.x), "f"(v.y), "r"(barrier)
               : "memory");
#endif
}
__device__ __forceinline__ void send_cluster(uint32_t address, float4 v, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(address),
               "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
               : "memory");
#endif
}

// Loads four floats from the shared memory of block `rank`, at the same offset as p in this block.
__device__ __forceinline__ float4 load_cluster(const float* p, int rank) {
#if __CUDA_ARCH__ >= 900
  float4 v;
  asm volatile(
      "{\n.reg .u32 remote;\nmapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [remote];\n}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(shared_address(p)), "r"(rank)
      : "memory");
  return v;
#else
  return *reinterpret_cast<const float4*>(p);
#endif
}

__device__ __forceinline__ float load_cluster_one(const float* p, int rank) {
#if __CUDA_ARCH__ >= 900
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(cluster_address(p, rank)) : "memory");
  return v;
#else
  return *p;
#endif
}

}  // namespace millrace
