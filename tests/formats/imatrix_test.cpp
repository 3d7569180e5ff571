#include "formats/imatrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "formats/gguf_source.h"
#include "formats/quantize_model.h"
#include "fresh_seed.h"
#include "scratch.h"
#include "tensor/dequantize.h"
#include "tensor/quantize_weighted.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr int64_t kMatrixRows = 16, kMatrixCols = 512, kMatrixExperts = 2;

std::span<const std::byte> encoded(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

// Writes tensors in F32.
void write_tensors(const std::string& path, const GgufMetadataBuilder& metadata,
                   const std::vector<std::pair<GgufTensor, std::vector<float>>>& tensors) {
  std::vector<GgufTensor> described;
  for (const auto& [tensor, values] : tensors) described.push_back(tensor);
  GgufWriter writer(path, metadata, described);
  for (const auto& [tensor, values] : tensors) writer.write(encoded(values));
  writer.finish();
}

class ImatrixTest : public testing::Test {
 protected:
  ImatrixTest() : random_(seed_) { SCOPED_TRACE(seed_); }
  std::string path(const char* name) const { return (scratch_.path() / name).string(); }

  std::vector<float> drawn(int64_t count) {
    std::normal_distribution<float> normal(0, 0.05f);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random_);
    return values;
  }
  // Mean squares of activations of which every eighth column is large.
  std::vector<float> skewed(int64_t count, size_t first) {
    std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = uniform(random_) * (i % 8 == first ? 400.0f : 1.0f);
    return values;
  }

  void write_imatrix(int64_t cols, int64_t experts = kMatrixExperts, const char* name = "blk.0.ffn_up_exps.weight") {
    GgufMetadataBuilder metadata;
    metadata.add_string("general.type", "imatrix");
    metadata.add_string_list("imatrix.datasets", std::vector<std::string>{"text.txt"});
    metadata.add_u32("imatrix.chunk_count", 3);
    metadata.add_u32("imatrix.chunk_size", 512);
    sums_.clear();
    for (int64_t i = 0; i < experts; ++i) {
      const auto one = skewed(cols, static_cast<size_t>(i));
      sums_.insert(sums_.end(), one.begin(), one.end());
    }
    write_tensors(path("imatrix.gguf"), metadata,
                  {{{std::string(name) + ".in_sum2", DType::F32, {experts, cols}}, sums_},
                   {{std::string(name) + ".counts", DType::F32, {experts, 1}},
                    std::vector<float>(static_cast<size_t>(experts), 7)}});
  }
  void write_model() {
    GgufMetadataBuilder metadata;
    metadata.add_string("general.architecture", "llama");
    metadata.add_u32("llama.block_count", 1);
    weights_ = drawn(kMatrixExperts * kMatrixRows * kMatrixCols);
    write_tensors(path("model.gguf"), metadata,
                  {{{"blk.0.ffn_up_exps.weight", DType::F32, {kMatrixExperts, kMatrixRows, kMatrixCols}}, weights_}});
  }
  std::string quantize(const char* type, bool weighted) {
    ThreadPool pool(1);
    try {
      std::optional<Imatrix> imatrix;
      if (weighted) imatrix = Imatrix::read(path("imatrix.gguf"));
      quantize_model(
          *open_gguf(path("model.gguf")), path("out.gguf"), *find_recipe(type), pool, [](int64_t, int64_t) {},
          imatrix ? &*imatrix : nullptr);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  // sum of importance * error^2 over the quantized model
  double error_of_products() {
    const auto file = open_gguf(path("out.gguf"));
    const WeightView view = file->tensor("blk.0.ffn_up_exps.weight", {kMatrixExperts, kMatrixRows, kMatrixCols});
    std::vector<float> row(kMatrixCols);
    double error = 0;
    for (int64_t i = 0; i < view.rows; ++i) {
      dequantize_row(view.dtype, view.row(i), row.data(), kMatrixCols);
      for (int64_t j = 0; j < kMatrixCols; ++j) {
        const double difference = row[static_cast<size_t>(j)] - weights_[static_cast<size_t>(i * kMatrixCols + j)];
        error += sums_[static_cast<size_t>(i / kMatrixRows * kMatrixCols + j)] * difference * difference;
      }
    }
    return error;
  }

  const unsigned seed_ = static_cast<unsigned>(fresh_seed());
  std::mt19937 random_;
  ScratchFolder scratch_;
  std::vector<float> weights_, sums_;
};

TEST_F(ImatrixTest, LowersTheErrorOfProducts) {
  write_model();
  write_imatrix(kMatrixCols);
  for (const char* type :
       {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
    ASSERT_EQ(quantize(type, false), "") << type;
    const double plain = error_of_products();
    ASSERT_EQ(quantize(type, true), "") << type;
    EXPECT_LT(error_of_products(), 0.9 * plain) << type << ", seed " << seed_;
  }
  const auto file = open_gguf(path("out.gguf"));
  EXPECT_EQ(file->gguf()->integer("quantize.imatrix.entries_count"), 1);
  EXPECT_EQ(file->gguf()->integer("quantize.imatrix.chunks_count"), 3);
  EXPECT_EQ(file->gguf()->string("quantize.imatrix.dataset"), "text.txt");
}

TEST_F(ImatrixTest, IsRelativeToTheMeanOfEachExpert) {
  write_imatrix(kMatrixCols);
  const Imatrix imatrix = Imatrix::read(path("imatrix.gguf"));
  const auto importance =
      imatrix.of({"blk.0.ffn_up_exps.weight", DType::F32, {kMatrixExperts, kMatrixRows, kMatrixCols}});
  ASSERT_EQ(importance.size(), size_t{kMatrixExperts * kMatrixCols});
  for (int64_t i = 0; i < kMatrixExperts; ++i) {
    double total = 0;
    for (int64_t j = 0; j < kMatrixCols; ++j) total += importance[static_cast<size_t>(i * kMatrixCols + j)];
    EXPECT_NEAR(total / kMatrixCols, 1, 1e-3);
  }
  const size_t other = 1 * kMatrixCols + 1;
  EXPECT_NEAR(importance[other] / importance[other + 1], sums_[other] / sums_[other + 1], 1);
}

TEST_F(ImatrixTest, OfAnotherModelIsRefusedByName) {
  write_model();
  write_imatrix(kMatrixCols / 2);
  EXPECT_THAT(quantize("Q4_0", true),
              HasSubstr("'blk.0.ffn_up_exps.weight' has 2 x 256 columns, the model's has 2 x 512"));
  write_imatrix(kMatrixCols, 3);
  EXPECT_THAT(quantize("Q4_0", true), HasSubstr("has 3 x 512 columns"));
  write_imatrix(kMatrixCols, kMatrixExperts, "blk.0.other.weight");
  EXPECT_THAT(quantize("Q4_0", true), HasSubstr("has no matrix of this model"));
  EXPECT_FALSE(std::filesystem::exists(path("out.gguf")));
}

TEST_F(ImatrixTest, BadFilesAreRefused) {
  write_model();
  std::filesystem::copy_file(path("model.gguf"), path("imatrix.gguf"));
  EXPECT_THAT(quantize("Q4_0", true), HasSubstr("is not an importance matrix"));
  GgufMetadataBuilder metadata;
  metadata.add_string("general.type", "imatrix");
  write_tensors(path("imatrix.gguf"), metadata, {{{"a.weight.in_sum2", DType::F32, {1, 2}}, {1, 2}}});
  EXPECT_THAT(quantize("Q4_0", true), HasSubstr("'a.weight' has no counts"));
  write_tensors(path("imatrix.gguf"), metadata,
                {{{"a.weight.in_sum2", DType::F32, {1, 2}}, {1, -2}}, {{"a.weight.counts", DType::F32, {1, 1}}, {1}}});
  EXPECT_THAT(quantize("Q4_0", true), HasSubstr("negative or not finite"));
}

}  // namespace
}  // namespace millrace
