// Importance matrices: sums against inputs computed here, names and counts against the files' tensors.
#include "engine/measure/importance.h"

#include <algorithm>

#include "models/golden.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr int64_t kWindow = 16;

std::vector<int32_t> text_of_tokens() {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 40; ++i) tokens.push_back(i * 13 % 40);  // two windows and a rest
  return tokens;
}

ImatrixSums importance(const std::filesystem::path& model, int64_t windows = 0, int32_t bos = -1) {
  auto runner =
      load(model.string(),
           {.threads = 2, .exact = true, .context = kWindow, .rows = kWindow, .logit_rows = kWindow, .block_size = 16});
  return measure_importance(*runner, text_of_tokens(), windows, bos, [](auto, auto) {});
}

std::vector<float> row_of(const WeightSource& source, const std::string& name, int64_t row) {
  const WeightView view = source.tensor(name, source.find(name)->shape);
  std::vector<float> values(static_cast<size_t>(view.cols));
  dequantize_row(view.dtype, view.row(row), values.data(), view.cols);
  return values;
}

// The first layer's attention reads the normed embedding.
std::vector<double> first_inputs(const WeightSource& source, std::span<const int32_t> tokens, double epsilon) {
  const auto weight = row_of(source, "blk.0.attn_norm.weight", 0);
  std::vector<double> squares(weight.size());
  for (const int32_t token : tokens) {
    const auto x = row_of(source, "token_embd.weight", token);
    double mean = 0;
    for (const float value : x) mean += double(value) * double(value) / double(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double input = double(x[i]) / std::sqrt(mean + epsilon) * double(weight[i]);
      squares[i] += input * input;
    }
  }
  return squares;
}

TEST(Importance, SumsSquaresOfInputs) {
  const auto file = goldens_folder() / "llama_gqa" / "model.gguf";
  const auto source = open_weights(file.string());
  auto tokens = text_of_tokens();
  tokens.resize(2 * kWindow);
  const ImatrixSums sums = importance(file);
  EXPECT_EQ(sums.chunks, 2u);
  EXPECT_EQ(sums.chunk_size, kWindow);
  const double epsilon = *source->gguf()->number("llama.attention.layer_norm_rms_epsilon");
  const auto expected = first_inputs(*source, tokens, epsilon);
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    const auto& entry = sums.entries.at(name);
    ASSERT_EQ(entry.squares.size(), expected.size()) << name;
    EXPECT_EQ(entry.counts, std::vector<float>{2 * kWindow}) << name;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(entry.squares[i], expected[i], 1e-4 * expected[i]) << name << " " << i;
  }
  const ImatrixSums one = importance(file, 1, 7);
  tokens.resize(kWindow);
  tokens[0] = 7;
  const auto of_one = first_inputs(*source, tokens, epsilon);
  EXPECT_NEAR(one.entries.at("blk.0.attn_q.weight").squares[3], of_one[3], 1e-4 * of_one[3]);
}

// Matrices whose input llama.cpp's tool would see, too.
bool is_covered(const TensorInfo& tensor) {
  const auto is = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
  return tensor.shape.size() > 1 && tensor.name.starts_with("blk.") && !is("norm") && !is("conv") && !is("ssm_a") &&
         !is("ssm_d") && !is("attn_k_b") && !is("attn_v_b");
}

class ImportanceOf : public testing::TestWithParam<const char*> {};

TEST_P(ImportanceOf, EveryMatrixOfTheFile) {
  const auto folder = goldens_folder() / GetParam();
  const auto source = open_weights((folder / "model.gguf").string());
  const ImatrixSums sums = importance(folder / "model.gguf");
  const int64_t per_row = source->gguf()->integer(source->config().architecture() + ".expert_used_count").value_or(1);
  size_t covered = 0;
  for (const TensorInfo& tensor : source->tensors()) {
    if (!is_covered(tensor)) continue;
    ++covered;
    ASSERT_TRUE(sums.entries.contains(tensor.name)) << tensor.name;
    const auto& entry = sums.entries.at(tensor.name);
    EXPECT_EQ(entry.columns, tensor.shape.back()) << tensor.name;
    const int64_t experts = tensor.shape.size() > 2 ? tensor.shape.front() : 1;
    ASSERT_EQ(std::ssize(entry.counts), experts) << tensor.name;
    double rows = 0;
    for (const float count : entry.counts) rows += double(count);
    EXPECT_EQ(rows, double(2 * kWindow * (experts > 1 ? per_row : 1))) << tensor.name;
  }
  EXPECT_GT(covered, 0u);
  Imatrix("sums", sums).check_belongs_to(source->tensors());
}

// The folder has other names, shapes and orders; its matrix is the one of the file.
TEST_P(ImportanceOf, FolderAndFileAgree) {
  const auto folder = goldens_folder() / GetParam();
  const ImatrixSums of_file = importance(folder / "model.gguf"), of_folder = importance(folder);
  for (const auto& [name, entry] : of_file.entries) {
    ASSERT_TRUE(of_folder.entries.contains(name)) << name;
    const auto& other = of_folder.entries.at(name);
    EXPECT_EQ(other.counts, entry.counts) << name;
    ASSERT_EQ(other.squares.size(), entry.squares.size()) << name;
    float largest = 0;
    for (const float square : entry.squares) largest = std::max(largest, square);
    for (size_t i = 0; i < entry.squares.size(); ++i)
      EXPECT_NEAR(other.squares[i], entry.squares[i], 1e-3 * double(largest)) << name << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ImportanceOf,
                         testing::Values("llama_gqa", "mixtral", "qwen2_moe", "phi3_partial_rotary", "gpt2",
                                         "granitemoeshared"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Importance, RefusesAShortText) {
  auto runner = load((goldens_folder() / "llama_gqa").string(), {.context = 64, .rows = 64, .logit_rows = 64});
  EXPECT_THROW(measure_importance(*runner, text_of_tokens(), 0, -1, [](auto, auto) {}), Error);
}

}  // namespace
}  // namespace millrace
