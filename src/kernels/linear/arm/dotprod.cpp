// SDOT: four products of four rows at once.
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

MR_BEGIN_TARGET("arch=armv8.2-a+dotprod", "dotprod")
namespace millrace {
namespace {

struct Dot {
  // sum[row] += w[row's quad] * x[quad `lane`]. As assembly, since the order of the sums matters: the compiler's own
  // leaves too few of them in flight.
  template <int lane>
  __attribute__((always_inline)) static void quad(int32x4_t& sum, int8x16_t w, int8x16_t x) {
    asm volatile("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum) : "w"(w), "w"(x), "i"(lane));
  }
};

#include "kernels/linear/arm/dot_panel-inl.h"
#include "kernels/linear/arm/strip-inl.h"

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

std::span<const Rows8Method> dotprod_methods() {
  static const Rows8Method methods[] = {
      {.name = "gemv_dotprod",
       .isa = Isa::DotProd,
       .max_m = 1,
       .x_bytes = strip_x_bytes,
       .quantize = quantize_for_strips,
       .multiply = strips,
       .compute_share = 0.55,
       .unpack_effort_rows = 1,
       .whole_nibbles = true},
      {.name = "flat_dotprod",
       .isa = Isa::DotProd,
       .min_m = 2,
       .max_m = 16,
       .tile_rows = 4,
       .x_bytes = strip_x_bytes,
       .quantize = quantize_for_strips,
       .multiply = strips,
       .compute_share = 0.55,
       .unpack_effort_rows = 1,
       .whole_nibbles = true},
      {.name = "full_dotprod",
       .isa = Isa::DotProd,
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
