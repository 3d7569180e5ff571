#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tensor/kv_dtype.h"
#include "vectors.h"

namespace millrace {
namespace {

TEST(Dequantize, EveryFormatIsBitForBitWhatPyPiGgufSays) {
  size_t formats = 0;
  for (const VectorRecord& record : read_vectors("dequantize.bin")) {
    const auto dtype = dtype_from_name(record.name);
    ASSERT_TRUE(dtype.has_value()) << record.name;
    ASSERT_EQ(row_bytes(*dtype, static_cast<int64_t>(record.numbers.size())), record.blocks.size()) << record.name;
    std::vector<float> out(record.numbers.size() + 1, std::numeric_limits<float>::quiet_NaN());
    dequantize_row(*dtype, record.blocks.data(), out.data(), static_cast<int64_t>(record.numbers.size()));
    for (size_t i = 0; i < record.numbers.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(record.numbers[i])) << record.name << " " << i;
    }
    ASSERT_TRUE(std::isnan(out.back())) << record.name << " wrote beyond the row";
    ++formats;
  }
  EXPECT_EQ(formats, all_dtypes().size() - 1);  // all but F32
}

TEST(DType, FormatsWithoutANumberInGgufAreNotFoundByOne) {
  EXPECT_EQ(dtype_from_ggml(39), DType::MXFP4);
  EXPECT_EQ(dtype_from_ggml(0xffffffffu), std::nullopt);
}

TEST(DType, KvCachesHaveAFormatThatWeightsHaveNot) {
  EXPECT_EQ(kv_dtype_from_name("fp8"), kFp8);
  EXPECT_EQ(kv_dtype_from_name("Q8_0"), DType::Q8_0);
  EXPECT_EQ(kv_dtype_from_name("q4_0"), std::nullopt);
  EXPECT_EQ(dtype_from_name("fp8"), std::nullopt);
  EXPECT_EQ(row_bytes(kFp8, 80), 80u);
}

TEST(Dequantize, EveryFp8NumberSurvivesAndOthersGoToTheNearest) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<std::byte>(bits);
    float x = 0;
    dequantize_row(kFp8, &byte, &x, 1);
    if (bits % 128 == 127) {
      EXPECT_TRUE(std::isnan(x));
    } else {
      EXPECT_EQ(f32_to_e4m3(x), bits) << x;
    }
  }
  EXPECT_EQ(f32_to_e4m3(1.0625f), f32_to_e4m3(1.0f)) << "a tie goes to the even neighbour";
  EXPECT_EQ(f32_to_e4m3(1.0626f), f32_to_e4m3(1.125f));
  EXPECT_EQ(f32_to_e4m3(-1e9f), f32_to_e4m3(-448.0f));
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::quiet_NaN()), 0);
}

TEST(Dequantize, F32IsCopied) {
  const std::vector<float> numbers{1.5f, -0.0f, 3e38f};
  std::vector<float> out(3);
  dequantize_row(DType::F32, reinterpret_cast<const std::byte*>(numbers.data()), out.data(), 3);
  EXPECT_EQ(out, numbers);
  dequantize_row(DType::F32, nullptr, out.data(), 0);
}

}  // namespace
}  // namespace millrace
