// Models with latent attention on a GPU in the absorbed and in the materialised form, against the CPU, and prompts of
// both in one step.
#include "models/latent_forms.h"

#include "cuda/support.h"

namespace millrace {
namespace {

constexpr double kFastNear = 0.15;  // as in model_test.cpp: random weights amplify roundings

class CudaLatentFormsTest : public testing::TestWithParam<Golden> {
  void SetUp() override {
    if (GetParam().name == "deepseek_v3_halves") GTEST_SKIP() << "refused on a GPU";
    if (gpu().hardware().architecture != 90) GTEST_SKIP() << "for Hopper only";
  }
};

std::unique_ptr<Runner> load_form(const std::string& model, const std::string& form, int64_t rows) {
  return load(model, {.device = DeviceChoice::Cuda,
                      .threads = 2,
                      .forced = {{"latent_prompt", form}},
                      .context = 64,
                      .sequences = 3,
                      .rows = rows,
                      .logit_rows = rows,
                      .block_size = 16});
}

// The largest difference within a row, relative to its largest logit; the median of the rows. Rounding moves some rows
// of a mixture to other experts.
double median_row_error(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want) {
  std::vector<double> errors;
  for (size_t i = 0; i < want.size(); ++i) {
    double error = 0, largest = 0;
    for (size_t j = 0; j < want[i].size(); ++j) {
      if (!std::isfinite(got[i][j])) return 1e30;
      error = std::max<double>(error, std::abs(got[i][j] - want[i][j]));
      largest = std::max<double>(largest, std::abs(want[i][j]));
    }
    errors.push_back(error / largest);
  }
  std::nth_element(errors.begin(), errors.begin() + std::ssize(errors) / 2, errors.end());
  return errors[errors.size() / 2];
}

std::vector<std::vector<float>> on_cpu(const std::string& file, const std::vector<int32_t>& tokens) {
  const auto length = std::ssize(tokens);
  auto runner = load(
      file, {.threads = 2, .exact = true, .context = length, .rows = length, .logit_rows = length, .block_size = 16});
  return all_logits(*runner, tokens, static_cast<int32_t>(length));
}

TEST_P(CudaLatentFormsTest, StayNearTheCpuInChunksOfAnySize) {
  const std::vector<int32_t> tokens = read_expected(GetParam()).tokens;
  const auto length = static_cast<int32_t>(tokens.size());
  for (const std::string& file : files_of(GetParam())) {
    const auto want = on_cpu(file, tokens);
    for (const std::string form : {"absorbed", "cuda_materialised"}) {
      auto runner = load_form(file, form, length);
      for (const int32_t chunk : {length, 17, 3}) {
        SCOPED_TRACE(file + " " + form + " chunk " + std::to_string(chunk));
        std::vector<std::vector<float>> logits;
        const bool ran = materialises(*runner, [&] { logits = all_logits(*runner, tokens, chunk); });
        EXPECT_EQ(ran, form != "absorbed");
        EXPECT_LE(median_row_error(logits, want), kFastNear);
      }
    }
  }
}

// A decode and two prompt chunks with different contexts, of the same text.
TEST_P(CudaLatentFormsTest, ShareAStep) {
  const std::vector<int32_t> tokens = read_expected(GetParam()).tokens;
  const auto length = static_cast<int32_t>(tokens.size());
  const auto alone = on_cpu(GetParam().folder.string(), tokens);
  auto runner = load_form(GetParam().folder.string(), "cuda_materialised", 3 * length);
  Matrix logits;
  const std::vector<StepPart> parts{{29, 1}, {7, 12}, {0, length - 1}};
  EXPECT_TRUE(materialises(*runner, [&] { logits = forward_parts(*runner, tokens, parts); }));
  std::vector<std::vector<float>> got, want;
  for (const StepPart& part : parts) {
    for (int32_t i = 0; i < part.rows; ++i) {
      const float* row = logits.row<float>(std::ssize(got));
      got.emplace_back(row, row + logits.cols);
      want.push_back(alone[static_cast<size_t>(part.past + i)]);
    }
  }
  ASSERT_EQ(std::ssize(got), logits.rows);
  EXPECT_LE(median_row_error(got, want), kFastNear);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaLatentFormsTest, testing::ValuesIn(latent_goldens()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace millrace
