#include "formats/folder_quantization.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "formats/weight_source.h"
#include "fresh_seed.h"
#include "scratch.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string random_bytes(size_t count, std::mt19937& random) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() >> 7);
  return bytes;
}

// A folder with tensors from their dtype, shape and bytes.
class FolderQuantizationTest : public testing::Test {
 protected:
  void add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape, std::string bytes) {
    json_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_.empty() ? "" : ",",
                         name, dtype, fmt::join(shape, ","), data_.size(), data_.size() + bytes.size());
    data_ += bytes;
  }
  std::unique_ptr<WeightSource> open(const std::string& config) {
    scratch_.write("model.safetensors", safetensors_file("{" + json_ + "}", data_));
    scratch_.write("config.json", config);
    return open_weights(scratch_.path().string());
  }
  std::string error(const std::string& config) {
    return message_of([&] { open(config); });
  }
  std::vector<float> numbers(const WeightSource& source, const std::string& name) {
    const WeightView view = source.tensor(name, source.find(name)->shape);
    source.fetch(view, pool_);
    std::vector<float> out(static_cast<size_t>(view.rows * view.cols));
    for (int64_t i = 0; i < view.rows; ++i)
      dequantize_row(view.dtype, view.row(i), &out[size_t(i * view.cols)], view.cols);
    return out;
  }

  ThreadPool pool_{2};
  ScratchFolder scratch_;
  std::string json_, data_;
};

std::string fp8_config(const std::string& more) {
  return R"({"model_type": "llama", "quantization_config": {"quant_method": "fp8")" + more + "}}";
}
constexpr const char* kTiles64 = R"(, "weight_block_size": [64, 32])";

float e4m3(uint8_t q) {
  const int exponent = q >> 3 & 15;
  const float magnitude = std::ldexp((exponent > 0 ? 1.0f : 0.0f) + float(q & 7) / 8, std::max(exponent, 1) - 7);
  return (q & 0x80) != 0 ? -magnitude : magnitude;
}

TEST_F(FolderQuantizationTest, Fp8TakesTheScaleOfItsTile) {
  std::mt19937 random(fresh_seed());
  const std::vector<int64_t> shape{3, 70, 96};  // experts, rows, cols: tiles of 64 x 32, the last row of tiles cut
  std::string q = random_bytes(3 * 70 * 96, random);
  for (char& byte : q) byte = (byte & 0x7f) == 0x7f ? 0 : byte;  // no NaN
  for (const bool half : {false, true}) {
    json_ = data_ = "";
    std::string scales;
    std::vector<float> expected_scales;
    for (int i = 0; i < 3 * 2 * 3; ++i) {
      const float value = half ? 0.5f * float(i + 1) : 1.0f / float(i + 3);
      scales += half ? raw(f32_to_bf16(value)) : raw(value);
      expected_scales.push_back(value);
    }
    add("odd", "F32", {1}, raw(1.0f));
    add("byte", "U8", {1}, "x");  // the tensors behind it are misaligned
    add("w", "F8_E4M3", shape, q);
    add("w_scale_inv", half ? "BF16" : "F32", {3, 2, 3}, scales);
    const auto source = open(fp8_config(kTiles64));
    EXPECT_FALSE(source->has("w_scale_inv"));
    EXPECT_EQ(source->find("w")->dtype, DType::F8_E4M3);
    EXPECT_EQ(source->find("w")->bytes, 3u * 70 * 96 / 32 * 36);
    const auto values = numbers(*source, "w");
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t row = i / 96 % 70, col = i % 96, expert = i / 96 / 70;
      const float scale = expected_scales[(expert * 2 + row / 64) * 3 + col / 32];
      ASSERT_EQ(values[i], e4m3(static_cast<uint8_t>(q[i])) * scale) << i;
    }
  }
}

TEST_F(FolderQuantizationTest, Fp8RowsThatAreNotWholeBlocksAreWidened) {
  add("w", "F8_E4M3", {3, 5}, std::string(15, '\x38'));  // 1.0
  add("w_scale_inv", "F32", {2, 2}, raw(1.0f) + raw(2.0f) + raw(3.0f) + raw(4.0f));
  const auto source = open(fp8_config(R"(, "weight_block_size": [2, 3])"));
  EXPECT_EQ(source->find("w")->dtype, DType::F32);
  EXPECT_THAT(numbers(*source, "w"), ElementsAre(1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4));
}

TEST_F(FolderQuantizationTest, BytesAreThereFromFetchToRelease) {
  add("w", "F8_E4M3", {256, 128}, std::string(256 * 128, '\x38'));  // 1.0
  add("w_scale_inv", "F32", {2, 1}, raw(2.0f) + raw(3.0f));
  const auto source = open(fp8_config(R"(, "weight_block_size": [128, 128])"));
  const WeightView whole = source->tensor("w", {256, 128});
  EXPECT_EQ(source->fetched_bytes(whole), whole.bytes());
  WeightView half = whole;
  half.data = whole.row(128);
  half.rows = 128;
  source->fetch(half, pool_);
  float first = 0, last = 0;
  std::memcpy(&last, whole.row(255), sizeof last);
  std::memcpy(&first, whole.row(0), sizeof first);
  EXPECT_EQ(last, 3.0f);
  EXPECT_EQ(first, 0.0f);
  source->fetch(whole, pool_);
  std::memcpy(&first, whole.row(0), sizeof first);
  EXPECT_EQ(first, 2.0f);
  source->release(whole);
  std::memcpy(&first, whole.row(0), sizeof first);
  EXPECT_EQ(first, 0.0f);
}

TEST_F(FolderQuantizationTest, Fp8OfWrongShapesIsRefused) {
  const std::string config = fp8_config(kTiles64);
  const auto with = [&](std::vector<int64_t> shape, std::vector<int64_t> scales, const std::string& dtype = "F32") {
    json_ = data_ = "";
    const auto count = [](const std::vector<int64_t>& of) { return static_cast<size_t>(*element_count(of)); };
    add("w", "F8_E4M3", shape, std::string(count(shape), '\0'));
    add("w_scale_inv", dtype, scales, std::string(count(scales) * (dtype == "F32" ? 4 : 1), '\0'));
    return error(config);
  };
  EXPECT_THAT(with({64, 96}, {1, 2}), HasSubstr("'w_scale_inv' should be [1, 3], the file has [1, 2]"));
  EXPECT_THAT(with({65, 96}, {1, 3}), HasSubstr("should be [2, 3]"));
  EXPECT_THAT(with({2, 64, 96}, {1, 3}), HasSubstr("should be [2, 1, 3]"));
  EXPECT_THAT(with({96}, {3}), HasSubstr("not a matrix"));
  EXPECT_THAT(with({64, 96}, {1, 3}, "F8_E8M0"), HasSubstr("F8_E8M0"));
  for (const char* tile : {"[64]", "[0, 32]", "[64, -32]", "\"wide\""}) {
    json_ = data_ = "";
    add("w", "F8_E4M3", {64, 96}, std::string(64 * 96, '\0'));
    add("w_scale_inv", "F32", {1, 3}, std::string(12, '\0'));
    EXPECT_NE(error(fp8_config(R"(, "weight_block_size": )" + std::string(tile))), "") << tile;
  }
}

TEST_F(FolderQuantizationTest, Fp8WithoutTilesOfScalesCannotBeRun) {
  add("w", "F8_E4M3", {64, 96}, std::string(64 * 96, '\0'));
  add("w_scale", "F32", {1}, raw(1.0f));
  const auto source = open(fp8_config(""));
  EXPECT_THAT(message_of([&] { source->tensor("w", {64, 96}); }), HasSubstr("F8_E4M3"));
}

TEST_F(FolderQuantizationTest, Mxfp4BlocksAndScalesAreOneTensor) {
  std::mt19937 random(fresh_seed());
  const std::string blocks = random_bytes(2 * 5 * 3 * 16, random);
  std::string scales;
  for (int i = 0; i < 2 * 5 * 3; ++i) scales += static_cast<char>(120 + random() % 14);
  add("e.down_proj_blocks", "U8", {2, 5, 3, 16}, blocks);
  add("e.down_proj_scales", "U8", {2, 5, 3}, scales);
  const auto source = open(R"({"model_type": "gpt_oss"})");
  EXPECT_THAT(source->find("e.down_proj")->shape, ElementsAre(2, 5, 96));
  EXPECT_EQ(source->tensors().size(), 1u);
  const auto values = numbers(*source, "e.down_proj");
  constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (size_t i = 0; i < values.size(); ++i) {
    const int q = static_cast<uint8_t>(blocks[i / 2]) >> (i % 2 * 4) & 15;
    const float number = kNumbers[q & 7] * (q >= 8 ? -1.0f : 1.0f);
    ASSERT_EQ(values[i], std::ldexp(number, static_cast<uint8_t>(scales[i / 32]) - 127)) << i;
  }
}

TEST_F(FolderQuantizationTest, Mxfp4GateAndUpAreApart) {
  std::string blocks, scales;
  for (int row = 0; row < 2 * 6; ++row) {
    blocks += std::string(16, '\x22');  // all ones
    scales += static_cast<char>(127 + row);
  }
  add("e.gate_up_proj_blocks", "U8", {2, 6, 1, 16}, blocks);
  add("e.gate_up_proj_scales", "U8", {2, 6, 1}, scales);
  const auto source = open(R"({"model_type": "gpt_oss"})");
  EXPECT_THAT(source->find("e.gate_proj")->shape, ElementsAre(2, 3, 32));
  const auto gate = numbers(*source, "e.gate_proj"), up = numbers(*source, "e.up_proj");
  for (int row = 0; row < 6; ++row) {
    EXPECT_EQ(gate[size_t(row) * 32], std::ldexp(1.0f, 2 * row));
    EXPECT_EQ(up[size_t(row) * 32 + 31], std::ldexp(1.0f, 2 * row + 1));
  }
}

TEST_F(FolderQuantizationTest, DamagedMxfp4IsRefused) {
  const std::string config = R"({"model_type": "gpt_oss"})";
  add("w_blocks", "U8", {2, 1, 16}, std::string(32, '\0'));
  EXPECT_THAT(error(config), HasSubstr("'w_scales' is missing"));
  add("w_scales", "U8", {2, 2}, std::string(4, '\0'));
  EXPECT_THAT(error(config), HasSubstr("'w_blocks' should be [2, 2, 16]"));
  json_ = data_ = "";
  add("w_blocks", "U8", {2, 1, 15}, std::string(30, '\0'));
  add("w_scales", "U8", {2, 1}, std::string(2, '\0'));
  EXPECT_THAT(error(config), HasSubstr("should be [2, 1, 16]"));
  json_ = data_ = "";
  add("w_blocks", "U8", {16}, std::string(16, '\0'));
  add("w_scales", "U8", {}, std::string(1, '\0'));
  EXPECT_THAT(error(config), HasSubstr("'w_blocks'"));
  json_ = data_ = "";
  add("gate_up_proj_blocks", "U8", {3, 1, 16}, std::string(48, '\0'));
  add("gate_up_proj_scales", "U8", {3, 1}, std::string(3, '\0'));
  EXPECT_THAT(error(config), HasSubstr("not pairs of gate and up"));
}

TEST_F(FolderQuantizationTest, PlainExpertsOfGptOssBecomeRows) {
  std::string gate_up, down, bias;
  for (int i = 0; i < 2 * 4 * 6; ++i) gate_up += raw(float(i));  // [E, hidden, 2 inner]
  for (int i = 0; i < 2 * 3 * 4; ++i) down += raw(f32_to_bf16(float(i)));
  for (int i = 0; i < 2 * 6; ++i) bias += raw(float(i));
  add("l.mlp.experts.gate_up_proj", "F32", {2, 4, 6}, gate_up);
  add("l.mlp.experts.down_proj", "BF16", {2, 3, 4}, down);
  add("l.mlp.experts.gate_up_proj_bias", "F32", {2, 6}, bias);
  const auto source = open(R"({"model_type": "gpt_oss"})");
  EXPECT_EQ(source->tensors().size(), 5u);
  EXPECT_THAT(source->find("l.mlp.experts.up_proj")->shape, ElementsAre(2, 3, 4));
  const auto up = numbers(*source, "l.mlp.experts.up_proj");
  for (int e = 0; e < 2; ++e) {
    for (int row = 0; row < 3; ++row) {
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(up[size_t((e * 3 + row) * 4 + i)], float((e * 4 + i) * 6 + 2 * row + 1));
      }
    }
  }
  EXPECT_THAT(source->find("l.mlp.experts.down_proj")->shape, ElementsAre(2, 4, 3));
  EXPECT_EQ(numbers(*source, "l.mlp.experts.down_proj")[1], 4.0f);
  EXPECT_THAT(numbers(*source, "l.mlp.experts.gate_proj_bias"), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(numbers(*source, "l.mlp.experts.up_proj_bias"), ElementsAre(1, 3, 5, 7, 9, 11));
}

TEST(CheckQuantization, OtherMethodsAreRefusedByName) {
  const auto check = [](const std::string& inner) {
    check_quantization(Config::from_hf(R"({"quantization_config": )" + inner + "}", "config.json"));
  };
  EXPECT_NO_THROW(check("null"));
  EXPECT_NO_THROW(check(R"({"quant_method": "mxfp4"})"));
  EXPECT_NO_THROW(check(R"({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})"));
  const auto refusal = [&](const std::string& inner) { return message_of([&] { check(inner); }); };
  EXPECT_THAT(refusal(R"({"quant_method": "awq"})"), HasSubstr("'awq'"));
  EXPECT_THAT(refusal(R"({"quant_method": "compressed-tensors"})"), HasSubstr("'compressed-tensors'"));
  EXPECT_THAT(refusal(R"({"quant_method": "fp8"})"), HasSubstr("one scale per tensor"));
  EXPECT_THAT(refusal(R"({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "static"})"),
              HasSubstr("'static'"));
  EXPECT_THAT(refusal("{}"), HasSubstr("quantization method"));
  EXPECT_THAT(refusal(R"({"quant_method": 3})"), HasSubstr("quant_method"));
}

}  // namespace
}  // namespace millrace
