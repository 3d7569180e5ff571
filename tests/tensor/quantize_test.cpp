#include "tensor/quantize.h"
#include "fresh_seed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tensor/dequantize.h"
#include "vectors.h"

namespace millrace {
namespace {

std::vector<std::byte> quantized(DType dtype, const std::vector<float>& numbers) {
  const auto n = static_cast<int64_t>(numbers.size());
  std::vector<std::byte> blocks(row_bytes(dtype, n), std::byte{0xa5});
  quantize_row(dtype, numbers.data(), blocks.data(), n);
  return blocks;
}

std::vector<float> round_trip(DType dtype, const std::vector<float>& numbers) {
  const auto blocks = quantized(dtype, numbers);
  std::vector<float> out(numbers.size(), std::numeric_limits<float>::quiet_NaN());
  dequantize_row(dtype, blocks.data(), out.data(), static_cast<int64_t>(numbers.size()));
  return out;
}

// |a - b| / |b|
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST(Quantize, SimpleFormatsAreByteForByteWhatPyPiGgufWrites) {
  const auto records = read_vectors("quantize.bin");
  EXPECT_EQ(records.size(), 8u);
  for (const VectorRecord& record : records) {
    EXPECT_EQ(quantized(*dtype_from_name(record.name), record.numbers), record.blocks) << record.name;
  }
}

// Errors of ggml's own quantizers on 512 x 1024 normally distributed numbers, plus 1 %. Ours must not be worse. The
// test uses as many numbers: with a fifth of them, chance alone exceeds 1 % once in a hundred runs.
struct ErrorCase {
  DType dtype;
  double most;
};

class QuantizeError : public testing::TestWithParam<ErrorCase> {};

TEST_P(QuantizeError, OfNormalWeightsIsNoLargerThanGgmls) {
  const auto seed = fresh_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> numbers(512 * 1024);
  for (float& v : numbers) v = normal(random);
  EXPECT_LT(relative_error(round_trip(GetParam().dtype, numbers), numbers), GetParam().most * 1.01);
}

INSTANTIATE_TEST_SUITE_P(AllFormats, QuantizeError,
                         testing::Values(ErrorCase{DType::F16, 3e-4}, ErrorCase{DType::BF16, 2e-3},
                                         ErrorCase{DType::Q8_0, 0.00537}, ErrorCase{DType::Q4_0, 0.0862},
                                         ErrorCase{DType::Q4_1, 0.0783}, ErrorCase{DType::Q5_0, 0.0428},
                                         ErrorCase{DType::Q5_1, 0.0379}, ErrorCase{DType::Q2_K, 0.2956},
                                         ErrorCase{DType::Q3_K, 0.1511}, ErrorCase{DType::Q4_K, 0.0714},
                                         ErrorCase{DType::Q5_K, 0.0362}, ErrorCase{DType::Q6_K, 0.0178},
                                         ErrorCase{DType::IQ4_NL, 0.0762}, ErrorCase{DType::IQ4_XS, 0.0768},
                                         ErrorCase{DType::MXFP4, 0.1141}, ErrorCase{DType::F8_E4M3, 0.0262}),
                         [](const auto& param) { return std::string(name(param.param.dtype)); });

TEST(Quantize, ZeroesStayZeroAndConstantsStayConstant) {
  for (const DTypeInfo& type : all_dtypes()) {
    const std::vector<float> zeroes(512, 0.0f);
    EXPECT_EQ(round_trip(type.dtype, zeroes), zeroes) << type.name;
    for (const float value : {0.75f, -0.75f}) {
      const auto back = round_trip(type.dtype, std::vector<float>(512, value));
      for (const float v : back) ASSERT_NEAR(v, value, 0.01) << type.name;
    }
  }
}

TEST(Quantize, OneLargeNumberAmongSmallOnesSurvives) {
  for (const DTypeInfo& type : all_dtypes()) {
    std::vector<float> numbers(256, 0.001f);
    numbers[77] = -3.0f;
    const auto back = round_trip(type.dtype, numbers);
    EXPECT_NEAR(back[77], -3.0f, 0.15f) << type.name;
  }
}

TEST(Quantize, ADequantizedRowComesBackTheSame) {
  // Formats without a search reproduce their own numbers exactly.
  const auto seed = fresh_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(1024);
  for (float& v : numbers) v = normal(random);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q5_0}) {
    const auto once = round_trip(dtype, numbers);
    EXPECT_LT(relative_error(round_trip(dtype, once), once), 1e-3) << name(dtype);
  }
}

TEST(Quantize, NaNAndInfinityDoNoHarmBeyondTheirBlock) {
  for (const DTypeInfo& type : all_dtypes()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> numbers(512, 0.5f);
      numbers[3] = bad;
      const auto back = round_trip(type.dtype, numbers);
      for (size_t i = 256; i < 512; ++i) ASSERT_NEAR(back[i], 0.5f, 0.01f) << type.name;
    }
  }
}

}  // namespace
}  // namespace millrace
