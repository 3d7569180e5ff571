// SDOT: four products of four rows in one instruction.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/linear/rows8/arm/arm.h"
#include "kernels/linear/rows8/packed.h"
#include "kernels/linear/rows8/target.h"
#include "tensor/blocks.h"

MR_BEGIN_TARGET("arch=armv8.2-a+dotprod", "dotprod")
namespace millrace {
namespace {

struct Dot {
  static constexpr int kMostStreams = 4;

  // sum[row] += w[row's quad] * x[quad `lane`]. Inline assembly fixes the instruction order: the compiler keeps too few
  // sums in flight.
  template <int lane>
  __attribute__((always_inline)) static void quad(int32x4_t& sum, int8x16_t w, int8x16_t x) {
    asm volatile("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum) : "w"(w), "w"(x), "i"(lane));
  }
};

#include "kernels/linear/rows8/arm/dot_panel-inl.h"
#include "kernels/linear/rows8/arm/strip-inl.h"
// Must follow the formats:
#include "kernels/linear/rows8/arm/flat-inl.h"
#include "kernels/linear/rows8/arm/flat_dot-inl.h"
#include "kernels/linear/rows8/arm/near_nibbles-inl.h"

// K-blocks of other than 4 bits are expensive to unpack. With up to four rows of x it is faster to unpack both halves
// of a strip at the same time.
bool few_rows(const LinearArgs& args) {
  bool few = false;
  with_format(args.weights->format, [&](auto format) {
    few = args.x.rows <= 4 && decltype(format)::kGroups > 1 && !decltype(format)::kNibbles;
  });
  return few;
}
size_t few_or_flat_x_bytes(int64_t m, int64_t k) { return std::max(strip_x_bytes(m, k), flat_x_bytes<RowsOfX>(m, k)); }
void quantize_few_or_flat(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  (few_rows(args) ? quantize_for_strips : quantize_for_flat<RowsOfX>)(args, m_begin, m_end, x);
}
void few_or_flat(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  (few_rows(args) ? strips : flat_strips<DotFlat>)(args, x, scratch, piece);
}

// Decode for cores that read fastest in memory order, with short prefetches into the L1 cache.
template <class Format>
void near_strips_of(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  static constexpr Ahead kNear{MR_NEAR_SMALL_AHEAD, MR_NEAR_K_AHEAD, 3};
  const auto* row = x_tile<Format, 1>(x, piece.m_begin, args.weights->k);
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
    if constexpr (Format::kNibbles && Format::kGroups == 1) {
      multiply_near_nibbles<Format, kNear>(args, strip, piece.m_begin, row);
    } else {
      multiply_strip<Format, 1, 1, kNear>(args, strip, piece.m_begin, row);
    }
  }
}
void near_strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { near_strips_of<decltype(format)>(args, x, piece); });
}

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {
namespace {
#include "kernels/linear/rows8/arm/dot_methods-inl.h"
}  // namespace

std::span<const Rows8Method> dotprod_methods() {
  static const auto methods = [] {
    auto [gemv, flat, full] = dot_methods(Isa::DotProd, {"gemv_dotprod", "flat_dotprod", "full_dotprod"});
    flat.tile_rows = 8;
    flat.quantized_rows = 4;
    flat.x_bytes = few_or_flat_x_bytes;
    flat.quantize = quantize_few_or_flat;
    flat.multiply = few_or_flat;
    flat.compute_share = 0.70;
    flat.beside_faster = 0.55 / 0.70;
    flat.unpack_effort_rows = 1.2;
    flat.scale_effort = 0.15;
    Rows8Method near = gemv;
    near.name = "gemv_dotprod_near";
    near.multiply = near_strips;
    near.memory_share = 1.08;        // fits a Neoverse-N1,
    near.outgrown_with = Isa::I8mm;  // but not a Neoverse-V1
    return std::array{near, gemv, flat, full};
  }();
  return methods;
}

}  // namespace millrace
