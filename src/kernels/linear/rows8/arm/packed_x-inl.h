// Rounds x for products with packed weights. Included inside a target region, after the formats.
//
// Nibbles are multiplied without separating them. The whole byte, 16 high + low, times the x of the high nibble also
// adds low times a sixteenth of that x. So this amount is subtracted from the x of the low nibble beforehand:
//   high xh + low xl = (16 high + low) xh / 16 + low (xl - xh / 16)
#pragma once

#include "kernels/linear/rows8/arm/activations-inl.h"

// Factor from q to the value, and its inverse.
struct Steps {
  float step, inverse;
};

template <class Format>
MR_INLINE inline Steps steps_for(float largest) {
  constexpr float kMost = Format::kNibbles ? 127 / 1.0625f : 127;  // the x of a low nibble can grow by a sixteenth
  return {largest * (1 / kMost), largest > 0 ? kMost / largest : 0.0f};
}

// Sum of x in units of the step: all 32 elements, or the last 16.
template <class Format>
MR_INLINE inline float sum_of(const Rounded32& v) {
  const auto low = static_cast<float>(v.total[0]), high = static_cast<float>(v.total[1]);
  return Format::kNibbles ? low + high * 1.0625f : low + high;
}

// Initial value of a group's integer sum. It corrects for the difference between the stored and the actual zero point
// of the weights.
template <class Format>
MR_INLINE inline int32_t first_sum(const Rounded32& v) {
  if constexpr (Format::kNibbles) {
    constexpr int kLow = Format::kZero, kHigh = Format::kZero - 8;  // stored value minus actual value
    return -(16 * kLow * v.total[0] + kLow * v.total[1] + 16 * kHigh * v.total[1]);
  } else {
    return static_cast<int>(Format::kOffset / Format::kUnit) * (v.total[0] + v.total[1]);
  }
}

// Factor on the sum of products.
template <class Format>
constexpr float kPackedUnit = Format::kNibbles ? 1.0f / 16 : Format::kUnit;
