// BFMMLA: multiplies two rows of weights with two rows of x, four elements deep, bf16 in and f32 out.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/linear/rows8/arm/arm.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/target.h"
#include "tensor/blocks.h"

MR_BEGIN_TARGET("arch=armv8.2-a+bf16", "bf16")
namespace millrace {
namespace {

#include "kernels/linear/rows8/arm/bf16_panel-inl.h"

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

std::span<const Rows8Method> bf16_methods() {
  static const Rows8Method methods[] = {
      {.name = "full_bf16",
       .isa = Isa::Bf16,
       .min_m = 2,
       .plain_rows = true,
       .tile_rows = Bf16Micro::kRows,
       .x_bytes = panel_x_bytes<Bf16Micro>,
       .quantize = convert_x,
       .scratch_bytes = Bf16Micro::kBytes,
       .strips_per_panel = Bf16Micro::kStrips,
       .multiply = panels_of_any<Bf16Micro>,
       .compute_share = 0.41,
       .unpack_rows = 42,
       .row_step = 2},
  };
  return methods;
}

}  // namespace millrace
