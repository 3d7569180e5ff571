#include "tensor/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

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

TEST(Dequantize, F32IsCopied) {
  const std::vector<float> numbers{1.5f, -0.0f, 3e38f};
  std::vector<float> out(3);
  dequantize_row(DType::F32, reinterpret_cast<const std::byte*>(numbers.data()), out.data(), 3);
  EXPECT_EQ(out, numbers);
  dequantize_row(DType::F32, nullptr, out.data(), 0);
}

}  // namespace
}  // namespace millrace
