// Prompts and larger batches in int8: a panel of weights, requantized, stays in the L1 cache while many rows of x pass
// over it, eight at a time. Included inside a target region, after Dot.
//
// A Micro brings what differs between instructions:
//   WSuper           a stretch of up to 256 elements of eight rows of weights: put_step and put
//   XSuper           the same of x, whose rows may have a step for every 64 elements: parts, put_step and put
//   tile<rows>       multiplies stretches of both
#pragma once

#include "kernels/linear/arm/activations-inl.h"
#include "kernels/linear/arm/epilogue-inl.h"
#include "kernels/linear/arm/zero-inl.h"
#include "kernels/linear/rows8/tiles-inl.h"
#include "kernels/linear/rows8/tuned.h"
// After the tiles:
#include "kernels/linear/arm/requantize-inl.h"

constexpr int kPanelRows = 8;  // of x

constexpr int64_t kPanelStrips = MR_PANEL_STRIPS, kPanelSupers = MR_PANEL_GROUPS / kSuperGroups;

template <class Micro>
constexpr size_t kPanelBytes = static_cast<size_t>(kPanelStrips* kPanelSupers) * sizeof(typename Micro::WSuper);

template <class Micro, class Format>
__attribute__((noinline)) void fill_panel(const LinearWeights& weights, const Supers& supers, int64_t super,
                                          int64_t super_end, int64_t strip, int64_t strip_end,
                                          typename Micro::WSuper* panel) {
  for (; strip < strip_end; ++strip, panel += kPanelSupers) {
    for (int64_t i = super; i < super_end; ++i) {
      requantize<Format>(weights, strip, supers, i, panel[i - super]);
    }
  }
}

// Stretches of k go outermost, so that x of one stretch stays in the L2 cache while all strips pass.
template <class Micro>
void int8_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const Supers supers(args.weights->k);
  auto* panel = reinterpret_cast<typename Micro::WSuper*>(scratch);
  for (int64_t super = 0; super < supers.count; super += kPanelSupers) {
    const int64_t super_end = std::min(super + kPanelSupers, supers.count);
    for (int64_t strip = piece.strip_begin; strip < piece.strip_end; strip += kPanelStrips) {
      const int64_t strip_end = std::min(strip + kPanelStrips, piece.strip_end);
      with_format(args.weights->format, [&](auto format) {
        fill_panel<Micro, decltype(format)>(*args.weights, supers, super, super_end, strip, strip_end, panel);
      });
      for_tiles<kPanelRows>(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
        const auto* tile = reinterpret_cast<const typename Micro::XSuper*>(x) + row / kPanelRows * supers.count + super;
        for (int64_t s = strip; s < strip_end; ++s) {
          Micro::template tile<rows>(args, panel + (s - strip) * kPanelSupers, tile, supers, super, super_end, s, row);
        }
      });
    }
  }
}

template <class Micro>
size_t int8_panel_x_bytes(int64_t m, int64_t k) {
  return static_cast<size_t>((m + kPanelRows - 1) / kPanelRows * Supers(k).count) * sizeof(typename Micro::XSuper);
}

// One step for a stretch of x is enough unless some part of a row is so much larger than the others that they would
// lose more than half of their precision to it.
constexpr int kPartGroups = 2, kMostParts = kSuperGroups / kPartGroups;
constexpr float kUneven = 2.5f;  // how much less rounding error, in squares, parts must promise

struct PartsOfRows {
  int parts;  // all parts that the rows have
  float largest[kPanelRows][kMostParts];

  // Whether rows have parts depends on all rows of a tile, unless they must not depend on each other: then all have.
  MR_INLINE PartsOfRows(const LinearArgs& args, int64_t row, int64_t rows, int64_t first, int64_t size) {
    const Matrix& x = args.x;
    const auto all = static_cast<int>((size + kPartGroups - 1) / kPartGroups);
    bool even = !args.invariant;
    for (int64_t r = 0; r < kPanelRows; ++r) {
      float most = 0, squares = 0;
      for (int i = 0; i < all; ++i) {
        const int64_t groups = std::min<int64_t>(kPartGroups, size - kPartGroups * i);
        const float* from = x.row<float>(std::min(row + r, x.rows - 1)) + 32 * (first + kPartGroups * i);
        const float part = r < rows ? largest_of(from, 32 * groups) : 0.0f;
        largest[r][i] = part;
        squares += part * part;
        most = std::max(most, part);
      }
      even = even && static_cast<float>(all) * most * most <= kUneven * squares;
      whole_[r] = most;
    }
    parts = even ? 1 : all;
  }
  MR_INLINE float largest_in(int64_t r, int part) const { return parts == 1 ? whole_[r] : largest[r][part]; }
  MR_INLINE int part_of(int64_t group) const { return parts == 1 ? 0 : static_cast<int>(group / kPartGroups); }

 private:
  float whole_[kPanelRows];
};

// visit(part, first group, end) over the parts of a stretch that have a step of their own.
template <class XSuper, class Visit>
MR_INLINE inline void for_parts(const XSuper& x, int64_t size, const Visit& visit) {
  const int64_t groups = x.parts == 1 ? size : kPartGroups;
  for (int64_t part = 0, first = 0; first < size; ++part, first += groups) {
    visit(part, first, std::min(first + groups, size));
  }
}

template <class Micro>
void quantize_for_panels(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const Supers supers(args.x.cols);
  for (int64_t m = m_begin; m < m_end; m += kPanelRows) {
    auto* tile = reinterpret_cast<typename Micro::XSuper*>(out) + m / kPanelRows * supers.count;
    for (int64_t i = 0; i < supers.count; ++i, ++tile) {
      const PartsOfRows parts(args, m, m_end - m, supers.first(i), supers.size(i));
      tile->parts = parts.parts;
      for (int r = 0; r < kPanelRows; ++r) {
        const float* x = args.x.row<float>(std::min(m + r, m_end - 1)) + 32 * supers.first(i);
        for (int64_t g = 0; g < supers.size(i); ++g) {
          const float largest = parts.largest_in(r, parts.part_of(g));
          if (parts.parts > 1 || g == 0) tile->put_step(parts.part_of(g), r, largest * (1 / 127.0f));
          tile->put(g, r, round_32<false>(x + 32 * g, largest > 0 ? 127 / largest : 0.0f));
        }
      }
    }
  }
}

// Four of the integers that sums start from.
alignas(16) constexpr float kIntegerShifts[4] = {kIntegerShift, kIntegerShift, kIntegerShift, kIntegerShift};
MR_INLINE inline int32x4_t shifted_zero() {
  int32x4_t sum;
  asm volatile("ldr %q0, %1" : "=w"(sum) : "m"(kIntegerShifts));
  return sum;
}
MR_INLINE inline float32x4_t unshifted(int32x4_t sum) {
  return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(kIntegerShift));
}
