// AVX2: byte products are added in pairs to 16-bit sums, which saturate and must be widened before that.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/linear/rows8/x86/x86.h"
#include "tensor/blocks.h"

MR_BEGIN_TARGET("avx2,fma,f16c", "avx2,fma,f16c")
namespace millrace {
namespace {

struct Dot {
  template <class Format>
  static constexpr int zero() {
    return Format::kSigned ? 0 : Format::kZero;
  }
  template <class Format>
  __attribute__((always_inline)) static __m256i ready(__m256i w) {
    return w;
  }

  // sum[row] over `count` quads.
  template <class Format, int count>
  struct Sum {
    // Number of pair sums that 16 bits can hold, a power of two; |x| is at most 127.
    static constexpr int kHeld = static_cast<int>(std::bit_floor(32767u / (2 * 127 * Format::kMost)));
    static constexpr int kNarrow = Format::kSigned ? 1 : std::min(count, kHeld);
    static_assert(count % kNarrow == 0);
    __m256i wide, narrow;

    __attribute__((always_inline)) void start(int32_t from) {
      wide = zero<Format>() != 0 ? _mm256_set1_epi32(from) : _mm256_setzero_si256();
    }
    template <int nth>
    __attribute__((always_inline)) void add(__m256i w, __m256i x) {
      __m256i twos;
      if constexpr (Format::kSigned) twos = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
      if constexpr (!Format::kSigned) twos = _mm256_maddubs_epi16(w, x);
      narrow = nth % kNarrow == 0 ? twos : _mm256_add_epi16(narrow, twos);
      if constexpr (nth % kNarrow == kNarrow - 1) {
        wide = _mm256_add_epi32(wide, _mm256_madd_epi16(narrow, _mm256_set1_epi16(1)));
      }
    }
  };
};

#include "kernels/linear/rows8/x86/panel256-inl.h"
#include "kernels/linear/rows8/x86/strip-inl.h"

void strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { multiply_strips<decltype(format)>(args, x, piece); });
}

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

std::span<const Rows8Method> avx2_methods() {
  static const Rows8Method methods[] = {
      {.name = "gemv_avx2",
       .isa = Isa::Avx2,
       .max_m = 1,
       .x_bytes = strip_x_bytes,
       .quantize = quantize_for_strips<4>,
       .multiply = strips},
      {.name = "flat_avx2",
       .isa = Isa::Avx2,
       .min_m = 2,
       .max_m = 16,
       .tile_rows = 4,
       .x_bytes = strip_x_bytes,
       .quantize = quantize_for_strips<4>,
       .multiply = strips},
      {.name = "full_avx2",
       .isa = Isa::Avx2,
       .min_m = 2,
       .tile_rows = Micro256::kRows,
       .x_bytes = panel_x_bytes<Micro256>,
       .quantize = quantize_for_panels<Micro256>,
       .scratch_bytes = Micro256::kBytes,
       .strips_per_panel = Micro256::kStrips,
       .multiply = panels<Micro256>,
       .compute_share = 0.6,
       .unpack_rows = 4},
  };
  return methods;
}

}  // namespace millrace
