// SDOT: four products of four rows at once.
#include <algorithm>
#include <array>
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
  static constexpr int kMostStreams = 4;

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
namespace {
#include "kernels/linear/arm/dot_methods-inl.h"
}  // namespace

std::span<const Rows8Method> dotprod_methods() {
  static const auto methods = dot_methods(Isa::DotProd, {"gemv_dotprod", "flat_dotprod", "full_dotprod"});
  return methods;
}

}  // namespace millrace
