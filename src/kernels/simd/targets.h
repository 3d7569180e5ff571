// Instruction sets that the SIMD kernels are compiled for. Include this before any Highway header.
//
// Each SIMD kernel is compiled once per target and appears in its op's list once per target, best first. can_run()
// checks Hardware::isa, so --isa applies to all kernels alike and no state is global. The references serve the scalar
// level. SVE is disabled: vectors of unknown length cannot be array elements, which the register tiles need.
#pragma once

#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS HWY_SSSE3
// make() for each target, best first: MR_EACH_TARGET(norm_kernel).
#define MR_EACH_TARGET(make) N_AVX3::make(), N_AVX2::make(), N_SSE4::make()
#elif defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define MR_EACH_TARGET(make) N_NEON::make()
#else
#error "millrace has kernels for x86-64 and aarch64 only"
#endif

// For loops over the registers of a tile. They must be unrolled completely, or the tile is kept in memory.
#if defined(__clang__)
#define MR_UNROLL _Pragma("unroll")
#else
#define MR_UNROLL _Pragma("GCC unroll 16")
#endif
