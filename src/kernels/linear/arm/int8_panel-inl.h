// Prompts and larger batches in int8: a panel of weights, requantized, stays in the L1 cache while many rows of x pass
// over it, eight at a time. Included inside a target region, after Dot.
//
// A Micro brings what differs between instructions:
//   WSuper, XSuper   a stretch of up to 256 elements of eight rows: steps and q, each with put_step and put
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

template <class Micro>
void quantize_for_panels(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const Supers supers(args.x.cols);
  for (int64_t m = m_begin; m < m_end; m += kPanelRows) {
    auto* tile = reinterpret_cast<typename Micro::XSuper*>(out) + m / kPanelRows * supers.count;
    for (int r = 0; r < kPanelRows; ++r) {
      const bool valid = m + r < m_end;
      const float* x = args.x.row<float>(valid ? m + r : m);
      for (int64_t i = 0; i < supers.count; ++i) {
        const float* from = x + 32 * supers.first(i);
        const int64_t size = supers.size(i);
        const float largest = valid ? largest_of(from, 32 * size) : 0.0f;
        tile[i].put_step(r, largest * (1 / 127.0f));
        const float inverse = largest > 0 ? 127 / largest : 0.0f;
        for (int64_t g = 0; g < size; ++g) tile[i].put(g, r, round_32<false>(from + 32 * g, inverse));
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
