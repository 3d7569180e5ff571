// Plain NEON, for machines without dot instructions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/linear/arm/arm.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/target.h"
#include "tensor/blocks.h"

namespace millrace {
namespace {

struct Dot {
  // sum[row] += w[row's quad] * x[quad `lane`]. Two products fit 16 bits: |w| <= 128 and |x| <= 127.
  template <int lane>
  __attribute__((always_inline)) static void quad(int32x4_t& sum, int8x16_t w, int8x16_t x) {
    const int8x16_t quads = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane));
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(quads)), high = vmull_high_s8(w, quads);
    sum = vpadalq_s16(sum, vpaddq_s16(low, high));
  }
};

#include "kernels/linear/arm/dot_panel-inl.h"
#include "kernels/linear/arm/strip-inl.h"

}  // namespace

std::span<const Rows8Method> neon_methods() {
  static const Rows8Method methods[] = {
      {.name = "gemv_neon",
       .isa = Isa::Neon,
       .max_m = 1,
       .x_bytes = strip_x_bytes,
       .quantize = quantize_for_strips,
       .multiply = strips,
       .compute_share = 0.55,
       .unpack_effort_rows = 1,
       .whole_nibbles = true},
      {.name = "flat_neon",
       .isa = Isa::Neon,
       .min_m = 2,
       .max_m = 16,
       .tile_rows = 4,
       .x_bytes = strip_x_bytes,
       .quantize = quantize_for_strips,
       .multiply = strips,
       .compute_share = 0.55,
       .unpack_effort_rows = 1,
       .whole_nibbles = true},
      {.name = "full_neon",
       .isa = Isa::Neon,
       .min_m = 2,
       .tile_rows = kPanelRows,
       .x_bytes = int8_panel_x_bytes<DotMicro>,
       .quantize = quantize_for_panels<DotMicro>,
       .scratch_bytes = kPanelBytes<DotMicro>,
       .strips_per_panel = kPanelStrips,
       .multiply = int8_panels<DotMicro>,
       .compute_share = 0.74,
       .unpack_rows = 10,
       .unpack_effort_rows = 2.8},
  };
  return methods;
}

}  // namespace millrace
