#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value of the bits, computed arithmetically.
double f16_value(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half >> 15 != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryF16BecomesTheF32OfItsValueAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    const uint16_t magnitude = half & 0x7fff;
    ASSERT_EQ(std::signbit(value), half >> 15 != 0) << bits;
    if (magnitude > 0x7c00) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value)))) << bits;
      ASSERT_EQ(f32_to_f16(value), half | 0x200) << bits;  // quiet, payload kept
      continue;
    }
    if (magnitude == 0x7c00) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), f16_value(half)) << bits;
    }
    ASSERT_EQ(f32_to_f16(value), half) << bits;
  }
}

TEST(Half, BetweenTwoNeighboursF16RoundsToTheNearestAndTiesToEven) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const float middle = (f16_to_f32(low) + f16_to_f32(high)) / 2;  // exact in f32
    ASSERT_EQ(f32_to_f16(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, kInfinity)), high) << low;
    ASSERT_EQ(f32_to_f16(-middle), 0x8000 | (low % 2 == 0 ? low : high)) << low;
  }
}

TEST(Half, F16EndsAreRight) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32_to_f16(-kInfinity), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Half, EveryBf16ComesBackAndNeighboursTieToEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = bf16_to_f32(half);
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_bf16(value), half | 0x40) << bits;
      continue;
    }
    ASSERT_EQ(f32_to_bf16(value), half) << bits;
    if ((half & 0x7fff) >= 0x7f7f) continue;  // no finite neighbour above
    const auto next = static_cast<uint16_t>(half + 1);
    const float middle = std::bit_cast<float>(std::bit_cast<uint32_t>(value) | 0x8000u);
    ASSERT_EQ(f32_to_bf16(middle), half % 2 == 0 ? half : next) << bits;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(std::bit_cast<uint32_t>(middle) - 1)), half) << bits;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(std::bit_cast<uint32_t>(middle) + 1)), next) << bits;
  }
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

}  // namespace
}  // namespace millrace
