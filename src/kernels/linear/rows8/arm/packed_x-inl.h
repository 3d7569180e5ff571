// Rounding x for products with weights as they are packed. Included inside a target region, after the formats.
//
// Nibbles are multiplied without taking both out of their byte. The byte as it is, 16 high + low, times the x of the
// high one leaves low times a sixteenth of that x behind; so that much is taken off the x of the low one beforehand:
//   high xh + low xl = (16 high + low) xh / 16 + low (xl - xh / 16)
#pragma once

#include "kernels/linear/rows8/arm/activations-inl.h"

// Factor from q to what it stands for, and back.
struct Steps {
  float step, inverse;
};

template <class Format>
MR_INLINE inline Steps steps_for(float largest) {
  constexpr float kMost = Format::kNibbles ? 127 / 1.0625f : 127;  // a low nibble's x may grow by a sixteenth
  return {largest * (1 / kMost), largest > 0 ? kMost / largest : 0.0f};
}

// What x adds up to, in steps: all 32 elements, or the second 16 alone.
template <class Format>
MR_INLINE inline float sum_of(const Rounded32& v) {
  const auto low = static_cast<float>(v.total[0]), high = static_cast<float>(v.total[1]);
  return Format::kNibbles ? low + high * 1.0625f : low + high;
}

// What the products of a group start from, so that they come out right for weights that are stored with another zero
// point than they have.
template <class Format>
MR_INLINE inline int32_t first_sum(const Rounded32& v) {
  if constexpr (Format::kNibbles) {
    constexpr int kLow = Format::kZero, kHigh = Format::kZero - 8;  // what is stored less this is meant
    return -(16 * kLow * v.total[0] + kLow * v.total[1] + 16 * kHigh * v.total[1]);
  } else {
    return static_cast<int>(Format::kOffset / Format::kUnit) * (v.total[0] + v.total[1]);
  }
}

// What a sum of products has to be multiplied with.
template <class Format>
constexpr float kPackedUnit = Format::kNibbles ? 1.0f / 16 : Format::kUnit;
