// AMX: one instruction multiplies 16 rows of weights with 16 rows of x, 64 bytes of each.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
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

MR_BEGIN_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,amx-int8",
                "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,amx-int8")
namespace millrace {
namespace {

#include "kernels/linear/rows8/x86/amx_panel-inl.h"

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {

std::span<const Rows8Method> amx_methods() {
  static const Rows8Method methods[] = {
      {.name = "full_amx_bf16",
       .isa = Isa::Amx,
       .min_m = 2,
       .plain_rows = true,
       .tile_rows = AmxMicro::kRows,
       .x_bytes = panel_x_bytes<AmxMicro>,
       .quantize = convert_x,
       .scratch_bytes = AmxMicro::kBytes,
       .strips_per_panel = AmxMicro::kStrips,
       .multiply = within_piece<amx_panels>,
       .compute_share = 0.26,
       .unpack_rows = 80,
       .row_step = 16},
  };
  return methods;
}

}  // namespace millrace
