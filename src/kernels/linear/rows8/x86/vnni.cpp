// AVX-512 VNNI: multiplies four unsigned with four signed bytes and adds them to a 32-bit sum in one instruction.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/linear/rows8/x86/x86.h"
#include "tensor/blocks.h"

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // false positives in GCC 12's intrinsics
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

MR_BEGIN_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni",
                "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
namespace millrace {
namespace {

struct Dot {
  // Signed weights become unsigned with a zero point of 128.
  template <class Format>
  static constexpr int zero() {
    return Format::kSigned ? 128 : Format::kZero;
  }
  template <class Format>
  __attribute__((always_inline)) static __m256i ready(__m256i w) {
    return Format::kSigned ? _mm256_xor_si256(w, _mm256_set1_epi8(-128)) : w;
  }

  // sum[row] over `count` quads.
  template <class Format, int count>
  struct Sum {
    __m256i wide;

    __attribute__((always_inline)) void start(int32_t from) {
      wide = zero<Format>() != 0 ? _mm256_set1_epi32(from) : _mm256_setzero_si256();
    }
    template <int nth>
    __attribute__((always_inline)) void add(__m256i w, __m256i x) {
      wide = _mm256_dpbusd_epi32(wide, w, x);
    }
  };
};

#include "kernels/linear/rows8/x86/panel512-inl.h"
#include "kernels/linear/rows8/x86/strip-inl.h"
// Must follow the strips:
#include "kernels/linear/rows8/x86/flat512-inl.h"

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

std::span<const Rows8Method> vnni_methods() {
  static const Rows8Method methods[] = {
      {.name = "gemv_vnni",
       .isa = Isa::Avx512Vnni,
       .max_m = 1,
       .x_bytes = strip_x_bytes,
       .quantize = quantize_for_strips<1>,
       .multiply = within_piece<row_of_strips>},
      {.name = "flat_vnni",
       .isa = Isa::Avx512Vnni,
       .min_m = 2,
       .max_m = 32,
       .tile_rows = 8,
       .x_bytes = strip_x_bytes,
       .quantize = quantize_for_strips<8>,
       .multiply = within_piece<strip_pairs>,
       .compute_share = 0.57,
       .unpack_rows = 0.5},
      {.name = "full_vnni",
       .isa = Isa::Avx512Vnni,
       .min_m = 2,
       .tile_rows = Micro512::kRows,
       .x_bytes = panel_x_bytes<Micro512>,
       .quantize = quantize_for_panels<Micro512>,
       .scratch_bytes = Micro512::kBytes,
       .strips_per_panel = Micro512::kStrips,
       .multiply = within_piece<panels<Micro512>>,
       .compute_share = 0.75,
       .unpack_rows = 10},
  };
  return methods;
}

}  // namespace millrace
