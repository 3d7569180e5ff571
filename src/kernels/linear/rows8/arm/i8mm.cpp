// SMMLA: multiplies two rows of weights with two rows of x, eight elements deep.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/linear/rows8/arm/arm.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/target.h"
#include "tensor/blocks.h"

MR_BEGIN_TARGET("arch=armv8.2-a+dotprod+i8mm", "dotprod,i8mm")
namespace millrace {
namespace {

#include "kernels/linear/rows8/arm/mmla_panel-inl.h"
// Must follow the panels:
#include "kernels/linear/rows8/arm/flat-inl.h"
#include "kernels/linear/rows8/arm/flat_mmla-inl.h"

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

std::span<const Rows8Method> i8mm_methods() {
  static const Rows8Method methods[] = {
      {.name = "flat_i8mm",
       .isa = Isa::I8mm,
       .min_m = 2,
       .max_m = 16,
       .tile_rows = kPanelRows,
       .quantized_rows = 2,
       .x_bytes = flat_x_bytes<PairsOfX>,
       .quantize = quantize_for_flat<PairsOfX>,
       .multiply = flat_strips<MmlaFlat>,
       .compute_share = 0.40,
       .memory_share = 0.75,
       .unpack_effort_rows = 1.4,
       .scale_effort = 0.36,
       .whole_nibbles = true,
       .row_step = 2},
      {.name = "full_i8mm",
       .isa = Isa::I8mm,
       .min_m = 2,
       .tile_rows = kPanelRows,
       .x_bytes = panel_x_bytes<MmlaMicro>,
       .quantize = quantize_for_panels<MmlaMicro>,
       .scratch_bytes = MmlaMicro::kBytes,
       .strips_per_panel = kPanelStrips,
       .multiply = panels<MmlaMicro>,
       .compute_share = 0.36,  // of 32 products and 24 instructions that scale them; not measured
       .unpack_rows = 4,
       .unpack_effort_rows = 1.5,
       .scale_effort = 0.3,
       .row_step = 2},
  };
  return methods;
}

}  // namespace millrace
