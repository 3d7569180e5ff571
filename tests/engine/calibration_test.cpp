// A calibration is measured, stored and used. A wrong one costs time, not accuracy.
#include "engine/measure/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "models/golden.h"

namespace millrace {
namespace {

std::vector<int32_t> some_tokens(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(i * 13 % 40);
  return tokens;
}

// The kernel of this variant for the best instruction set of the machine.
std::string kernel_named(std::string_view part, Runner& runner) {
  const AttentionProblem problem = runner.ops().attentions().front();
  for (const auto* kernel : cpu_kernels().of<AttentionOp>()) {
    if (kernel->name().find(part) != std::string_view::npos && kernel->can_run(problem, runner.hardware()))
      return std::string(kernel->name());
  }
  return "";
}

class CalibrationTest : public testing::TestWithParam<const char*> {
 protected:
  ~CalibrationTest() override { std::filesystem::remove(Calibration::file_for(*source())); }
  std::string model() const { return (goldens_folder() / GetParam()).string(); }
  std::shared_ptr<const WeightSource> source() const { return open_weights(model()); }
  LoadOptions options(const std::string& kernel = "") const {
    LoadOptions o{.threads = 2, .exact = true, .context = 60, .rows = 60, .logit_rows = 60, .block_size = 16};
    if (!kernel.empty()) o.forced["attention"] = kernel;
    return o;
  }
};

double difference(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      if (!std::isfinite(a[i][j])) return 1e30;
      error = std::max<double>(error, std::abs(a[i][j] - b[i][j]));
      largest = std::max<double>(largest, std::abs(b[i][j]));
    }
  }
  return error / largest;
}

TEST_P(CalibrationTest, UnifiedMaximaGiveTheSameLogits) {
  const auto tokens = some_tokens(60);
  auto plain = load(model(), options());
  ASSERT_EQ(plain->rank().calibrated_layers(), 0) << Calibration::file_for(*source());
  const std::string unified = kernel_named("unified", *plain);
  ASSERT_FALSE(unified.empty());
  const auto expected = all_logits(*plain, tokens, 60);
  const Calibration found = calibrate(*plain, tokens, [](auto, auto) {});
  EXPECT_EQ(found.tokens, 60);
  EXPECT_LE(difference(all_logits(*plain, tokens, 60), expected), 0);  // results are unchanged once nothing is observed

  const auto file = Calibration::file_for(*source());
  const auto check = [&](const Calibration& calibration) {
    calibration.save(file, "test");
    auto runner = load(model(), options(unified));
    EXPECT_EQ(runner->rank().calibrated_layers(), runner->model().config().layers);
    EXPECT_LE(difference(all_logits(*runner, tokens, 60), expected), 2e-5);
    EXPECT_LE(difference(all_logits(*runner, tokens, 1), expected), 2e-5);
  };
  check(found);
  for (const float wrong : {1e4f, -1e4f, 1e30f, 88.0f}) {
    SCOPED_TRACE(wrong);
    Calibration other = found;
    std::fill(other.ranges.begin(), other.ranges.end(), ScoreRange{wrong, wrong});
    check(other);
  }
}

TEST_P(CalibrationTest, ComesBackAsItWasKept) {
  auto runner = load(model(), options());
  const auto& config = runner->model().config();
  const Calibration found = calibrate(*runner, some_tokens(33), [](auto, auto) {});
  const auto file = std::filesystem::temp_directory_path() / "millrace-calibration-test.json";
  found.save(file, "test");
  const auto back = Calibration::load(file, config.layers, config.heads);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->tokens, 33);
  for (size_t i = 0; i < found.ranges.size(); ++i) {
    EXPECT_EQ(back->ranges[i].least, found.ranges[i].least);
    EXPECT_EQ(back->ranges[i].most, found.ranges[i].most);
  }
  EXPECT_FALSE(Calibration::load(file, config.layers + 1, config.heads).has_value());
  EXPECT_FALSE(Calibration::load(file, config.layers, config.heads + 1).has_value());
  for (const char* damaged : {"{", "[]", "{\"tokens\": 3}", "{\"tokens\": 3, \"layers\": [[1]]}",
                              "{\"tokens\": 1, \"layers\": [[[2, 1]]]}"}) {
    std::ofstream(file) << damaged;
    EXPECT_FALSE(Calibration::load(file, 1, 1).has_value()) << damaged;
  }
  std::filesystem::remove(file);
}

INSTANTIATE_TEST_SUITE_P(Models, CalibrationTest, testing::Values("llama_gqa", "gemma2", "qwen3", "opt"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Calibration, HeadsThatSpreadTooFarAreLeftAlone) {
  Calibration c{1, 2, {{-5, 20}, {0, 1}, {-300, 300}, {0, 1}}};
  EXPECT_EQ(c.phi(0, DType::BF16), (std::vector<float>{7.5f, 0.5f}));
  EXPECT_TRUE(c.phi(1, DType::BF16).empty());
  EXPECT_TRUE(c.phi(0, DType::F16).empty());  // f16 has a smaller range
}

TEST(Calibration, FilesGoByWeightsNotByNames) {
  const auto file = [](const char* name) {
    return Calibration::file_for(*open_weights((goldens_folder() / name).string()));
  };
  EXPECT_EQ(file("llama_gqa"), file("llama_gqa"));
  EXPECT_NE(file("llama_gqa"), file("qwen3"));
}

}  // namespace
}  // namespace millrace
