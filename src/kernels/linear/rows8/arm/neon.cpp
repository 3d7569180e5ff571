// Plain NEON, for machines without dot-product instructions.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/linear/rows8/arm/arm.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/target.h"
#include "tensor/blocks.h"

namespace millrace {
namespace {

struct Dot {
  // Bound by arithmetic, not memory: one stream of weights suffices and leaves more registers.
  static constexpr int kMostStreams = 1;

  // sum[row] += w[row's quad] * x[quad `lane`]. Two products fit 16 bits, since |w| <= 128 and |x| <= 127.
  template <int lane>
  __attribute__((always_inline)) static void quad(int32x4_t& sum, int8x16_t w, int8x16_t x) {
    const int8x16_t quads = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane));
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(quads)), high = vmull_high_s8(w, quads);
    sum = vpadalq_s16(sum, vpaddq_s16(low, high));
  }
};

#include "kernels/linear/rows8/arm/dot_panel-inl.h"
#include "kernels/linear/rows8/arm/strip-inl.h"

#include "kernels/linear/rows8/arm/dot_methods-inl.h"

}  // namespace

std::span<const Rows8Method> neon_methods() {
  static const auto methods = dot_methods(Isa::Neon, {"gemv_neon", "flat_neon", "full_neon"});
  return methods;
}

}  // namespace millrace
