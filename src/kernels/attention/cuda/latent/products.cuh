// Warpgroup products of latent attention, with both operands in shared memory (prefill/warpgroup.cuh has the layout).
#pragma once

#include "kernels/attention/cuda/prefill/warpgroup.cuh"

namespace millrace {

#define MR_OUT8(c, i)                                                                                         \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
      "+f"(c[i + 7])
#define MR_OUT_AT(c, i) MR_OUT8(c, i), MR_OUT8(c, i + 8), MR_OUT8(c, i + 16), MR_OUT8(c, i + 24)
#define MR_OUT32(c) MR_OUT_AT(c, 0)
#define MR_OUT128(c) MR_OUT_AT(c, 0), MR_OUT_AT(c, 32), MR_OUT_AT(c, 64), MR_OUT_AT(c, 96)

// c[64 x 64] = (add ? c : 0) + a[64 x 16] b[64 x 16]^T, both K-major.
template <class T>
__device__ inline void multiply_latent_keys(float (&c)[32], uint64_t a, uint64_t b, int add);
template <>
__device__ inline void multiply_latent_keys<__nv_bfloat16>(float (&c)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0;"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;}"
      : MR_OUT32(c)
      : "l"(a), "l"(b), "r"(add));
}
template <>
__device__ inline void multiply_latent_keys<__half>(float (&c)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0;"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;}"
      : MR_OUT32(c)
      : "l"(a), "l"(b), "r"(add));
}

// c[64 x 256] = (add ? c : 0) + a[64 x 16] b[16 x 256]: a K-major, b N-major.
template <class T>
__device__ inline void add_latent_values(float (&c)[128], uint64_t a, uint64_t b, int add);
template <>
__device__ inline void add_latent_values<__nv_bfloat16>(float (&c)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %130, 0;"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, 0, 1;}"
      : MR_OUT128(c)
      : "l"(a), "l"(b), "r"(add));
}
template <>
__device__ inline void add_latent_values<__half>(float (&c)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %130, 0;"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, 0, 1;}"
      : MR_OUT128(c)
      : "l"(a), "l"(b), "r"(add));
}

#undef MR_OUT8
#undef MR_OUT_AT
#undef MR_OUT32
#undef MR_OUT128

}  // namespace millrace
