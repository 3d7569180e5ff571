// Prompts and large batches in int8: a panel of unpacked weights, each 32 elements with the file's own scale, is
// multiplied with rows of x that are rounded with one scale per 32 elements. Four rows of weights are processed at a
// time, so that integer sums and results stay in registers. Included inside a target region, after Dot.
#pragma once

#include "kernels/linear/rows8/arm/activations-inl.h"
#include "kernels/linear/rows8/arm/epilogue-inl.h"
#include "kernels/linear/rows8/arm/unpack-inl.h"
#include "kernels/linear/rows8/arm/zero-inl.h"
#include "kernels/linear/rows8/tuned.h"
// Must follow the formats:
#include "kernels/linear/rows8/panel-inl.h"

constexpr int kPanelRows = 8;  // rows of x
constexpr int64_t kPanelStrips = MR_PANEL_STRIPS, kPanelGroups = MR_PANEL_GROUPS;

// What the panels of all int8 instructions have in common; each adds multiply().
template <template <class> class GroupOf, class X>
struct Int8Micro {
  template <class Format>
  using Group = GroupOf<Format>;
  using XBlock = X;
  static constexpr int kRows = kPanelRows;
  static constexpr int64_t kJoined = 1, kStrips = kPanelStrips, kGroups = kPanelGroups;
  static constexpr size_t kBytes = kStrips * kGroups * sizeof(GroupOf<UnpackQ2_K>);  // the largest group

  template <class Format>
  MR_INLINE static void unpack(const typename Format::Block& block, int g, int, Group<Format>& to) {
    to.set(block, g);
  }
};

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

// The value of one unit of q, for four rows.
template <class Format>
MR_INLINE inline float32x4_t step_of(const typename Format::Block& block, int g, int half, int s) {
  return vmulq_n_f32(scale_of<Format>(block, g, half, s), Format::kUnit);
}
// Minima of four rows: the second minus the first, since the first sum of x covers all 32 elements.
template <class Format>
MR_INLINE inline float32x4_t min_step(const typename Format::Block& block, int g, int half, int s) {
  const float32x4_t min = min_of<Format>(block, g, half, s);
  return s == 0 ? min : vsubq_f32(min, min_of<Format>(block, g, half, 0));
}
template <class Format>
constexpr int kMinima = Format::kMins ? Format::kScales : 0;

// Missing rows of the last tile repeat the last row; their results are not written.
template <class Micro>
void quantize_for_panels(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const int64_t groups = args.x.cols / 32;
  for (int64_t m = m_begin; m < m_end; m += kPanelRows) {
    auto* tile = reinterpret_cast<typename Micro::XBlock*>(out) + m / kPanelRows * groups;
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const float* x = args.x.row<float>(std::min(m + r, m_end - 1));
      for (int64_t g = 0; g < groups; ++g) {
        const float largest = largest_of(x + 32 * g, 32), step = largest * (1 / 127.0f);
        const Rounded32 v = round_32<false>(x + 32 * g, largest > 0 ? 127 / largest : 0.0f);
        tile[g].step[r] = step;
        tile[g].sum[0][r] = step * static_cast<float>(v.total[0] + v.total[1]);
        tile[g].sum[1][r] = step * static_cast<float>(v.total[1]);
        tile[g].put(r, v);
      }
    }
  }
}
