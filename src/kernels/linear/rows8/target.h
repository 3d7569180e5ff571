// Code between MR_BEGIN_TARGET and MR_END_TARGET may use instructions that the rest of the build may not.
//
// Include all headers before it: an inline function compiled inside could become the copy that the linker keeps for the
// whole program. Clang 14 declares the intrinsics of an ARM extension only under -march, hence inline assembly in some
// places, and it uses other feature names.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#define MR_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define MR_BEGIN_TARGET(gcc_name, clang_name) \
  MR_PRAGMA(clang attribute push(__attribute__((target(clang_name))), apply_to = function))
#define MR_END_TARGET MR_PRAGMA(clang attribute pop)
#else
#define MR_BEGIN_TARGET(gcc_name, clang_name) \
  MR_PRAGMA(GCC push_options)                 \
  MR_PRAGMA(GCC target(gcc_name))
#define MR_END_TARGET MR_PRAGMA(GCC pop_options)
#endif
