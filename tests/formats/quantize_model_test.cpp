#include "formats/quantize_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "formats/gguf_source.h"
#include "formats/gguf_writer.h"
#include "fresh_seed.h"
#include "scratch.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

using testing::HasSubstr;

DType chosen(std::string_view recipe, std::string_view name, std::vector<int64_t> shape, bool has_output = true) {
  return dtype_for(*find_recipe(recipe), {name, shape, 32, has_output}).value_or(DType::F32);
}

TEST(QuantizeRecipe, FollowsLlamaCpp) {
  EXPECT_EQ(chosen("q4_0", "blk.3.attn_q.weight", {4096, 4096}), DType::Q4_0);
  EXPECT_EQ(chosen("q4_0", "output.weight", {32000, 4096}), DType::Q6_K);
  EXPECT_EQ(chosen("q4_0", "token_embd.weight", {32000, 4096}), DType::Q4_0);
  EXPECT_EQ(chosen("q4_0", "token_embd.weight", {32000, 4096}, false), DType::Q6_K);
  EXPECT_EQ(chosen("q8_0", "output.weight", {32000, 4096}), DType::Q8_0);
  EXPECT_EQ(chosen("F16", "output.weight", {32000, 4096}), DType::F16);
  EXPECT_EQ(chosen("q4_k", "blk.0.ffn_down.weight", {4096, 11008}), DType::Q4_K);
  EXPECT_EQ(chosen("Q4_K_M", "blk.0.ffn_down.weight", {4096, 11008}), DType::Q6_K);
  EXPECT_EQ(chosen("Q4_K_M", "blk.4.attn_v.weight", {4096, 4096}), DType::Q4_K);
  EXPECT_EQ(chosen("Q4_K_M", "blk.6.attn_v.weight", {4096, 4096}), DType::Q6_K);
  EXPECT_EQ(chosen("Q4_K_M", "blk.31.attn_v.weight", {4096, 4096}), DType::Q6_K);
  EXPECT_EQ(chosen("Q4_K_M", "blk.31.attn_k.weight", {4096, 4096}), DType::Q4_K);
  // Norms and biases keep their format. Rows that no block divides become F16; rows that are no multiple of 256 get
  // small blocks.
  EXPECT_EQ(chosen("q4_0", "blk.0.attn_norm.weight", {4096}), DType::F32);
  EXPECT_EQ(chosen("q4_0", "blk.0.attn_q_norm.weight", {32, 128}), DType::F32);
  EXPECT_EQ(chosen("q4_0", "position_embd.weight", {1024, 768}), DType::F32);
  EXPECT_EQ(chosen("q4_0", "blk.0.attn_q.bias", {4096}), DType::F32);
  EXPECT_EQ(chosen("q4_k", "blk.0.attn_q.weight", {576, 576}), DType::Q5_0);
  EXPECT_EQ(chosen("q6_k", "blk.0.attn_q.weight", {576, 576}), DType::Q8_0);
  EXPECT_EQ(chosen("q4_0", "blk.0.attn_q.weight", {48, 48}), DType::F16);
  EXPECT_EQ(find_recipe("q7"), nullptr);
}

class QuantizeModel : public testing::Test {
 protected:
  std::string in() const { return (scratch_.path() / "in.gguf").string(); }
  std::string out() const { return (scratch_.path() / "out.gguf").string(); }

  // A model of one matrix [30, 512] and one norm.
  void write_model(float spoil = 0) {
    std::mt19937 random(seed_);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    for (float& v : matrix_) v = normal(random);
    if (spoil != 0) matrix_[77] = spoil;
    GgufMetadataBuilder metadata;
    metadata.add_string("general.architecture", "llama");
    metadata.add_u32("general.file_type", 0);
    metadata.add_u32("general.alignment", 32);
    metadata.add_u32("llama.block_count", 1);
    GgufWriter writer(in(), metadata,
                      {{"blk.0.attn_q.weight", DType::F32, {30, 512}}, {"output_norm.weight", DType::F32, {4}}});
    writer.write(std::as_bytes(std::span(matrix_)));
    writer.write(std::as_bytes(std::span(norm_)));
    writer.finish();
  }

  QuantizeSummary quantize(std::string_view recipe) {
    ThreadPool threads(2);
    return quantize_model(*open_gguf(in()), out(), *find_recipe(recipe), threads, [&](int64_t done, int64_t total) {
      EXPECT_LE(done, total);
      done_ = done;
    });
  }

  const unsigned seed_ = fresh_seed();
  std::vector<float> matrix_ = std::vector<float>(30 * 512), norm_{1, 2, 3, 4};
  int64_t done_ = 0;
  ScratchFolder scratch_;
};

TEST_F(QuantizeModel, EveryRecipeWritesAModelThatIsCloseToTheOriginal) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  write_model();
  for (const QuantizeRecipe& recipe : all_recipes()) {
    const QuantizeSummary summary = quantize(recipe.name);
    EXPECT_EQ(summary.tensors, 2);
    EXPECT_EQ(done_, 30 * 512 + 4);
    const auto source = open_gguf(out());
    const WeightView view = source->tensor("blk.0.attn_q.weight", {30, 512});
    EXPECT_EQ(view.dtype, recipe.dtype);
    double error = 0, norm = 0;
    std::vector<float> row(512);
    for (int64_t r = 0; r < 30; ++r) {
      dequantize_row(view.dtype, view.row(r), row.data(), 512);
      for (size_t i = 0; i < 512; ++i) {
        const double wanted = static_cast<double>(matrix_[static_cast<size_t>(r) * 512 + i]);
        error += std::pow(static_cast<double>(row[i]) - wanted, 2);
        norm += wanted * wanted;
      }
    }
    EXPECT_LT(std::sqrt(error / norm), 0.31) << recipe.name;
    const WeightView kept = source->tensor("output_norm.weight", {4});
    EXPECT_EQ(std::memcmp(kept.data, norm_.data(), 16), 0);
    EXPECT_EQ(source->gguf()->integer("general.file_type"), recipe.file_type);
    EXPECT_EQ(source->gguf()->integer("general.quantization_version"), 2);
    EXPECT_EQ(source->config().integer({.gguf = "block_count"}), 1);
    EXPECT_EQ(source->gguf()->find("general.alignment"), nullptr);
  }
}

TEST_F(QuantizeModel, NumbersThatAreNotFiniteAreRefusedAndNothingIsLeft) {
  write_model(std::numeric_limits<float>::infinity());
  EXPECT_THAT(message_of([&] { quantize("q4_0"); }),
              HasSubstr("'blk.0.attn_q.weight' holds numbers that are not finite"));
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(QuantizeModel, TheInputIsNotOverwritten) {
  write_model();
  ThreadPool threads(1);
  const auto source = open_gguf(in());
  EXPECT_THAT(
      message_of([&] { quantize_model(*source, in(), *find_recipe("q4_0"), threads, [](int64_t, int64_t) {}); }),
      HasSubstr("overwrite the input"));
}

TEST_F(QuantizeModel, NumbersBeyondTheFormatAreRefusedAndNothingIsLeft) {
  write_model(1e6f);
  for (const char* recipe : {"f16", "q4_0"}) {
    EXPECT_THAT(message_of([&] { quantize(recipe); }), HasSubstr("too large for")) << recipe;
    EXPECT_FALSE(std::filesystem::exists(out()));
  }
  EXPECT_NO_THROW(quantize("q8_0"));
  EXPECT_NO_THROW(quantize("bf16"));
}

TEST_F(QuantizeModel, NoPartOfASplitInputIsOverwritten) {
  for (const char* part : {"split-00001-of-00003.gguf", "split-00002-of-00003.gguf", "split-00003-of-00003.gguf"})
    std::filesystem::copy_file(test_data(part), scratch_.path() / part);
  const std::string last = (scratch_.path() / "split-00003-of-00003.gguf").string();
  const std::string before = read_whole(last);
  const auto source = open_gguf(scratch_.path() / "split-00001-of-00003.gguf");
  ThreadPool threads(1);
  EXPECT_THAT(message_of([&] { quantize_model(*source, last, *find_recipe("f16"), threads, [](int64_t, int64_t) {}); }),
              HasSubstr("overwrite the input"));
  EXPECT_EQ(read_whole(last), before);
}

TEST_F(QuantizeModel, AMatrixWithoutRowsStaysOne) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 32}, {32, 0}}) {
    GgufMetadataBuilder metadata;
    metadata.add_string("general.architecture", "llama");
    GgufWriter writer(in(), metadata, {{"blk.0.attn_q.weight", DType::F32, shape}});
    writer.write({});
    writer.finish();
    EXPECT_EQ(quantize("q8_0").tensors, 1);
    EXPECT_EQ(open_gguf(out())->tensors()[0].shape, shape);
  }
}

TEST_F(QuantizeModel, AFormatThatCannotBeReadIsRefused) {
  ThreadPool threads(1);
  const auto source = open_gguf(test_data("all_types.gguf"));
  EXPECT_THAT(
      message_of([&] { quantize_model(*source, out(), *find_recipe("q4_0"), threads, [](int64_t, int64_t) {}); }),
      HasSubstr("IQ2_XXS"));
}

}  // namespace
}  // namespace millrace
