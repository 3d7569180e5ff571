#include "formats/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "formats/byte_vocabulary.h"
#include "formats/quantize_recipe.h"
#include "formats/synthetic_shapes.h"
#include "scratch.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

using testing::HasSubstr;

// Parameter counts from the model cards, in millions.
const std::map<std::string_view, double> kParameters{
    {"tiny", 1.312},
    {"tiny-experts", 3.6756},
    {"llama-2-7b", 6738},
    {"llama-2-13b", 13016},
    {"llama-2-70b", 68977},
    {"llama-3-8b", 8030},
    {"llama-3-70b", 70554},
    {"llama-3.1-8b", 8030},
    {"llama-3.2-1b", 1236},
    {"llama-3.2-3b", 3213},
    {"tinyllama-1.1b", 1100},
    {"smollm2-135m", 134.5},
    {"smollm2-360m", 361.8},
    {"smollm2-1.7b", 1711},
    {"mistral-7b", 7248},
    {"qwen2.5-0.5b", 494},
    {"qwen2.5-1.5b", 1544},
    {"qwen2.5-3b", 3086},
    {"qwen2.5-7b", 7616},
    {"qwen3-0.6b", 596},
    {"qwen3-1.7b", 1721},
    {"qwen3-4b", 4022},
    {"qwen3-8b", 8191},
    {"gemma2-2b", 2614},
    {"gemma2-9b", 9242},
    {"gemma3-1b", 999.9},
    {"gemma4-31b", 30700},
    {"gemma4-26b-a4b", 25230},
    {"granite-3.3-2b", 2534},
    {"granite-3.3-8b", 8171},
    {"phi3-mini", 3821},
    {"chatglm2-6b", 6244},
    {"glm-4-9b", 9400},
    {"opt-125m", 125.2},
    {"opt-1.3b", 1316},
    {"opt-6.7b", 6658},
    {"opt-13b", 12853},
    {"mixtral-8x7b", 46703},
    {"olmoe-7b", 6919},
    {"qwen3-30b-a3b", 30532},
    {"qwen3-235b-a22b", 235094},
    {"glm-4.5-air", 106852},
    {"granite-3.1-3b-a800m", 3299},
    {"gpt-oss-20b", 20915},
    {"gpt-oss-120b", 116829},
    {"deepseek-v2-lite", 15706},
    {"deepseek-v3", 671026},
    {"qwen3-next-80b-a3b", 79674},
    {"qwen3.5-35b-a3b", 34660},
    {"qwen3.5-27b", 26896},
    {"qwen3.5-2b", 1881.8},
    {"qwen3-next-2b", 1580},
    {"mamba2-2.7b", 2702.6},
    {"mamba2-1.3b", 1343.8},
    {"granite-4-h-1b", 1461.5},
    {"granite-4-tiny", 6939},
    {"nemotron-nano-9b-v2", 8888},
    {"lfm2-1.2b", 1170.3},
};

TEST(Synthetic, EveryShapeHasTheNumberOfParametersOfItsModel) {
  EXPECT_EQ(kParameters.size(), synthetic_shapes().size());
  for (const SyntheticShape& shape : synthetic_shapes()) {
    const auto source = open_weights("synthetic:" + std::string(shape.name));
    double parameters = 0;
    for (const TensorInfo& tensor : source->tensors()) parameters += static_cast<double>(*element_count(tensor.shape));
    EXPECT_NEAR(parameters / 1e6 / kParameters.at(shape.name), 1, 0.002) << shape.name;
  }
}

TEST(Synthetic, RoutersOfMixturesStayInF32) {
  const auto source = open_weights("synthetic:olmoe-7b:q4_0");
  EXPECT_EQ(source->find("blk.0.ffn_gate_inp.weight")->dtype, DType::F32);
  EXPECT_EQ(source->find("blk.0.ffn_gate_exps.weight")->dtype, DType::Q4_0);
  EXPECT_EQ(source->find("blk.0.ffn_gate_exps.weight")->shape, (std::vector<int64_t>{64, 1024, 2048}));
}

TEST(Synthetic, OnlyTheExpertsOfAnMxfp4MixtureHaveFourBits) {
  const auto source = open_weights("synthetic:gpt-oss-20b:mxfp4");
  EXPECT_EQ(source->find("blk.0.ffn_gate_exps.weight")->dtype, DType::MXFP4);
  EXPECT_EQ(source->find("blk.0.attn_q.weight")->dtype, DType::BF16);
  EXPECT_EQ(source->find("output.weight")->dtype, DType::BF16);
}

class SyntheticType : public testing::TestWithParam<QuantizeRecipe> {};

TEST_P(SyntheticType, WeightsAreFiniteAndOfTheUsualSize) {
  const auto source = open_weights(fmt::format("synthetic:smollm2-135m:{}", GetParam().name));
  EXPECT_EQ(source->config().integer({.gguf = "block_count"}), 30);
  for (const char* name : {"token_embd.weight", "blk.7.ffn_down.weight", "blk.29.attn_k.weight"}) {
    const WeightView view = source->tensor(name, source->find(name)->shape);
    std::vector<float> row(static_cast<size_t>(view.cols));
    for (const int64_t r : {int64_t{0}, view.rows / 2, view.rows - 1}) {
      dequantize_row(view.dtype, view.row(r), row.data(), view.cols);
      double squares = 0;
      for (const float v : row) squares += std::pow(static_cast<double>(v), 2);
      EXPECT_NEAR(std::sqrt(squares / static_cast<double>(view.cols)), 0.02, 0.004) << name << " " << r;
    }
  }
  const WeightView norm = source->tensor("output_norm.weight", {576});
  for (int i = 0; i < 576; ++i) EXPECT_NEAR(reinterpret_cast<const float*>(norm.data)[i], 1.0f, 0.1f);
}

INSTANTIATE_TEST_SUITE_P(AllRecipes, SyntheticType, testing::ValuesIn(all_recipes().begin(), all_recipes().end()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Synthetic, ALargeTensorRepeatsThePatternBlockByBlock) {
  // Q6_K's blocks of 210 bytes divide neither pages nor the pattern's usual size.
  const auto source = open_weights("synthetic:llama-3-8b:q6_k");
  const WeightView view = source->tensor("output.weight", {128256, 4096});
  std::vector<float> row(4096);
  for (int64_t r = 0; r < view.rows; r += 997) {
    dequantize_row(view.dtype, view.row(r), row.data(), view.cols);
    double squares = 0;
    for (const float v : row) squares += std::pow(static_cast<double>(v), 2);
    ASSERT_NEAR(std::sqrt(squares / 4096), 0.02, 0.004) << r;
  }
}

TEST(Synthetic, LlamaThreeOneFactorsAreThoseOfTheModel) {
  const auto source = open_weights("synthetic:llama-3.2-1b");
  const WeightView factors = source->tensor("rope_freqs.weight", {32});
  const auto* f = reinterpret_cast<const float*>(factors.data);
  EXPECT_EQ(f[0], 1.0f);
  EXPECT_NEAR(f[31], 32.0f, 1e-4f);
  for (int i = 1; i < 32; ++i) EXPECT_GE(f[i], f[i - 1]);
}

TEST(Synthetic, OptSpeaksHuggingFace) {
  const auto source = open_weights("synthetic:opt-125m:q4_0");
  EXPECT_EQ(source->convention(), WeightSource::Convention::HuggingFace);
  EXPECT_EQ(source->config().architecture(), "OPTForCausalLM");
  EXPECT_EQ(source->tensor("model.decoder.layers.3.fc1.weight", {3072, 768}).dtype, DType::Q4_0);
  EXPECT_EQ(source->tensor("model.decoder.embed_positions.weight", {2050, 768}).dtype, DType::F32);
}

TEST(Synthetic, TheVocabularyHasOneTokenForEachRowOfTheEmbedding) {
  const auto source = open_weights("synthetic:tiny");
  const auto tokens = source->gguf()->strings("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens->size(), 512u);
  EXPECT_EQ((*tokens)['A'], "A");
  EXPECT_EQ((*tokens)[' '], "\u0120");
  EXPECT_EQ((*tokens)[511], "[511]");
  EXPECT_EQ(std::set<std::string_view>(tokens->begin(), tokens->end()).size(), 512u);
  EXPECT_EQ(source->gguf()->integers("tokenizer.ggml.token_type")->size(), 512u);
  EXPECT_EQ(source->gguf()->find("tokenizer.ggml.token_type")->element_type(), GgufType::I32);
  EXPECT_FALSE(source->text("tokenizer.json"));
  EXPECT_TRUE(open_weights("synthetic:opt-125m")->text("tokenizer.json"));
  EXPECT_EQ(open_weights("synthetic:opt-125m")->gguf(), nullptr);
}

TEST(Synthetic, EveryVocabularyHoldsTheBytes) {
  for (const SyntheticShape& shape : synthetic_shapes()) EXPECT_GE(shape.vocab, kLeastByteVocabulary) << shape.name;
}

TEST(Synthetic, Eagle3HeadsHaveTheSizeOfPublishedOnes) {
  const auto source = open_weights("synthetic:eagle3-llama-3-8b:bf16");
  double parameters = 0;
  for (const TensorInfo& tensor : source->tensors()) parameters += static_cast<double>(*element_count(tensor.shape));
  EXPECT_NEAR(parameters / 1e6, 425, 1);
  EXPECT_EQ(source->tensor("fc.weight", {4096, 12288}).dtype, DType::BF16);
  const TensorInfo* shifts = source->find("d2t");
  ASSERT_EQ(shifts->bytes, 32000 * sizeof(int64_t));
  EXPECT_EQ(std::count(shifts->data, shifts->data + shifts->bytes, std::byte{}),
            std::ssize(std::span(shifts->data, shifts->bytes)));
  EXPECT_THAT(message_of([] { open_weights("synthetic:eagle3-mamba2-2.7b"); }), HasSubstr("attention"));
}

TEST(Synthetic, UnknownNamesAreAnsweredWithTheKnownOnes) {
  EXPECT_THAT(message_of([] { open_weights("synthetic:gpt-9"); }), HasSubstr("llama-3-8b"));
  EXPECT_THAT(message_of([] { open_weights("synthetic:llama-3-8b:q7"); }), HasSubstr("Q4_K_M"));
  EXPECT_THAT(message_of([] { open_weights("synthetic:"); }), HasSubstr("no synthetic shape ''"));
  EXPECT_THAT(message_of([] { open_weights("synthetic:llama-3-8b:"); }), HasSubstr("no number format ''"));
}

}  // namespace
}  // namespace millrace
