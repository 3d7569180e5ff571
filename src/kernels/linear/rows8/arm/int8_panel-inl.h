// Prompts and large batches in int8: a requantized panel of weights stays in the L1 cache while many rows of x, eight
// at a time, are multiplied with it. Included inside a target region, after Dot.
//
// A Micro provides the part that depends on the instruction set:
//   WSuper           a stretch of up to 256 elements of eight rows of weights: put_step and put
//   XSuper           the same of x, whose rows may have several scales: part_groups, put_step and put
//   tile<rows>       multiplies stretches of both
#pragma once

#include "kernels/linear/rows8/arm/activations-inl.h"
#include "kernels/linear/rows8/arm/epilogue-inl.h"
#include "kernels/linear/rows8/arm/zero-inl.h"
#include "kernels/linear/rows8/tiles-inl.h"
#include "kernels/linear/rows8/tuned.h"
// Must follow the tiles:
#include "kernels/linear/rows8/arm/requantize-inl.h"

constexpr int kPanelRows = 8;  // rows of x

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

// The loop over stretches of k is the outermost, so that x of one stretch stays in the L2 cache while all strips are
// multiplied.
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

// A stretch of x normally has one scale. If some part of a row is so much larger than the others that these would lose
// more than half of their precision, each 64 elements get their own scale; if one part of 32 dominates all others, each
// 32 elements do.
constexpr int kMostParts = kSuperGroups;
constexpr float kUneven = 2.5f, kVeryUneven = 1.9f;  // required reduction of the squared rounding error

class PartsOfRows {
 public:
  int64_t part_groups;  // groups of 32 per scale

  // All rows of a tile share their part length. If the result must be invariant, rows may not affect each other, and
  // the parts have the minimum length.
  MR_INLINE PartsOfRows(const LinearArgs& args, int64_t row, int64_t rows, int64_t first, int64_t size) {
    bool even = !args.invariant, very = args.invariant;
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = args.x.row<float>(row + r) + 32 * first;
      for (int64_t g = 0; g < kSuperGroups; ++g) largest_[r][g] = g < size ? largest_of(from + 32 * g, 32) : 0.0f;
      const float32x4_t low = vld1q_f32(largest_[r]), high = vld1q_f32(largest_[r] + 4), pairs = vpmaxq_f32(low, high);
      const float squares = vaddvq_f32(vfmaq_f32(vmulq_f32(low, low), high, high));
      const float of_pairs = 2 * vaddvq_f32(vmulq_f32(pairs, pairs)), most = vmaxvq_f32(pairs);
      even = even && static_cast<float>(size) * most * most <= kUneven * of_pairs;
      very = very || of_pairs > kVeryUneven * squares;
    }
    part_groups = even ? size : very ? 1 : 2;
    if (part_groups > 1) share_steps(rows);
  }
  MR_INLINE float largest_in(int64_t r, int64_t group) const { return largest_[r][group]; }

 private:
  // Gives all groups of a part the maximum of the part.
  MR_INLINE void share_steps(int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      float32x4_t pairs = vpmaxq_f32(vld1q_f32(largest_[r]), vld1q_f32(largest_[r] + 4));
      if (part_groups > 2) pairs = vdupq_n_f32(vmaxvq_f32(pairs));
      vst1q_f32(largest_[r], vzip1q_f32(pairs, pairs));
      vst1q_f32(largest_[r] + 4, vzip2q_f32(pairs, pairs));
    }
  }

  static_assert(kSuperGroups == 8);
  float largest_[kPanelRows][kSuperGroups];
};

// Calls visit(part, first group, end) over the parts of a stretch.
template <class XSuper, class Visit>
MR_INLINE inline void for_parts(const XSuper& x, int64_t size, const Visit& visit) {
  for (int64_t part = 0, first = 0; first < size; ++part, first += x.part_groups) {
    visit(part, first, std::min(first + x.part_groups, size));
  }
}

template <class Micro>
void quantize_for_panels(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const Supers supers(args.x.cols);
  for (int64_t m = m_begin; m < m_end; m += kPanelRows) {
    auto* tile = reinterpret_cast<typename Micro::XSuper*>(out) + m / kPanelRows * supers.count;
    for (int64_t i = 0; i < supers.count; ++i, ++tile) {
      const int64_t rows = std::min<int64_t>(kPanelRows, m_end - m);
      const PartsOfRows of_rows(args, m, rows, supers.first(i), supers.size(i));
      tile->part_groups = of_rows.part_groups;
      for (int64_t r = 0; r < kPanelRows; ++r) {
        const int64_t row = std::min(r, rows - 1);  // missing rows repeat the last one; their results are not written
        const float* x = args.x.row<float>(m + row) + 32 * supers.first(i);
        for_parts(*tile, supers.size(i), [&](int64_t part, int64_t first, int64_t end) MR_INLINE {
          const float largest = of_rows.largest_in(row, first);
          tile->put_step(part, r, largest * (1 / 127.0f));
          for (int64_t g = first; g < end; ++g) {
            tile->put(g, r, round_32<false>(x + 32 * g, largest > 0 ? 127 / largest : 0.0f));
          }
        });
      }
    }
  }
}

// Initial value of the sums: kIntegerShift in four lanes.
alignas(16) constexpr float kIntegerShifts[4] = {kIntegerShift, kIntegerShift, kIntegerShift, kIntegerShift};
MR_INLINE inline int32x4_t shifted_zero() {
  int32x4_t sum;
  asm volatile("ldr %q0, %1" : "=w"(sum) : "m"(kIntegerShifts));
  return sum;
}
MR_INLINE inline float32x4_t unshifted(int32x4_t sum) {
  return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(kIntegerShift));
}
