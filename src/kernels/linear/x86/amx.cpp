// AMX: 16 rows of weights with 16 rows of x, 32 bf16 elements each, in one instruction.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/linear/x86/x86.h"
#include "tensor/blocks.h"

MR_BEGIN_TARGET("avx2,fma,f16c,amx-tile,amx-bf16", "avx2,fma,f16c,amx-tile,amx-bf16")
namespace millrace {
namespace {

#include "kernels/linear/x86/amx_panel-inl.h"

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

std::span<const Rows8Method> amx_methods() {
  static const Rows8Method methods[] = {
      {.name = "full_amx_bf16",
       .isa = Isa::Amx,
       .min_m = 2,
       .tile_rows = AmxMicro::kRows,
       .x_bytes = panel_x_bytes<AmxMicro>,
       .quantize = convert_x,
       .scratch_bytes = AmxMicro::kBytes,
       .strips_per_panel = AmxMicro::kStrips,
       .multiply = amx_panels,
       .compute_share = 0.4,
       .unpack_rows = 100},
  };
  return methods;
}

}  // namespace millrace
