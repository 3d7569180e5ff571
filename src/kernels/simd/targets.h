// Which instruction sets the SIMD kernels are compiled for. To be included before any Highway header.
//
// Every SIMD kernel is compiled once per target and stands in its op's list once per target, best first; can_run() asks
// Hardware::isa, so that --isa decides by the same rule for all of them and no state is global. The scalar level is
// served by the references. Vectors of unknown length (SVE) cannot be held in arrays, which the register tiles need.
#pragma once

#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS HWY_SSSE3
// All that make(...) returns for each target, best first: MR_EACH_TARGET(norm_kernel).
#define MR_EACH_TARGET(make) N_AVX3::make(), N_AVX2::make(), N_SSE4::make()
#elif defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define MR_EACH_TARGET(make) N_NEON::make()
#else
#error "millrace has kernels for x86-64 and aarch64 only"
#endif

// Loops over the registers of a tile: unrolled completely, or the tile lives in memory.
#if defined(__clang__)
#define MR_UNROLL _Pragma("unroll")
#else
#define MR_UNROLL _Pragma("GCC unroll 16")
#endif
