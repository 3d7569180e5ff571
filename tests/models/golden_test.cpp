// Every architecture against Hugging Face transformers: from safetensors and GGUF, from both spellings of the config,
// and by model_type alone.
#include "models/golden.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"

namespace millrace {
namespace {

class GoldenTest : public testing::TestWithParam<Golden> {};

void expect_logits(const std::string& model, const Expected& expected, double tolerance) {
  EXPECT_LE(logit_error(model, expected), tolerance) << model;
}

void expect_greedy(const std::string& model, const Expected& expected) {
  const auto length = static_cast<int64_t>(expected.tokens.size() + expected.greedy.size());
  auto runner = load(model, {.threads = 2, .exact = true, .context = length, .rows = 16, .block_size = 16});
  Engine engine(*runner);
  engine.submit({expected.tokens, {.temperature = 0}, static_cast<int32_t>(expected.greedy.size())});
  std::vector<int32_t> generated;
  while (engine.step([&](const Emission& e) { generated.push_back(e.token); })) {
  }
  EXPECT_EQ(generated, expected.greedy) << model;
}

TEST_P(GoldenTest, HuggingFaceFolder) {
  const Golden& golden = GetParam();
  const Expected expected = read_expected(golden);
  expect_logits(golden.folder.string(), expected, golden.tolerance);
  expect_greedy(golden.folder.string(), expected);
}

TEST_P(GoldenTest, Gguf) {
  const Golden& golden = GetParam();
  if (!golden.has_gguf) GTEST_SKIP() << "GGUF cannot say what this case covers (see cases.json)";
  const Expected expected = read_expected(golden);
  expect_logits((golden.folder / "model.gguf").string(), expected, golden.tolerance);
  expect_greedy((golden.folder / "model.gguf").string(), expected);
}

// The same weights with another config, or the experts' weights in stacked tensors.
void expect_with_config(const Golden& golden, const std::string& config, bool stacked = false) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("millrace_config_" + golden.name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(golden.folder)) {
    const auto name = entry.path().filename();
    const bool weights = name.string().starts_with("model") && name != "model.gguf";
    if (stacked ? name == "stacked.safetensors" : weights)
      fs::copy_file(entry.path(), folder / (stacked ? fs::path("model.safetensors") : name));
  }
  std::ofstream(folder / "config.json") << config;
  expect_logits(folder.string(), read_expected(golden), golden.tolerance);
  fs::remove_all(folder);
}

nlohmann::json read_config(const Golden& golden, const std::string& name) {
  std::ifstream file(golden.folder / name);
  return nlohmann::json::parse(file);
}

TEST_P(GoldenTest, ConfigOfTransformers4) {
  if (!GetParam().has_v4) GTEST_SKIP() << "this model has one config only";
  expect_with_config(GetParam(), read_config(GetParam(), "config_v4.json").dump());
}

TEST_P(GoldenTest, StackedExperts) {
  if (!GetParam().has_stacked) GTEST_SKIP() << "not a mixture of experts";
  expect_with_config(GetParam(), read_config(GetParam(), "config.json").dump(), /*stacked=*/true);
}

TEST_P(GoldenTest, ConfigWithoutArchitectures) {
  nlohmann::json config = read_config(GetParam(), "config.json");
  ASSERT_EQ(config.erase("architectures"), 1u);
  expect_with_config(GetParam(), config.dump());
}

TEST(Goldens, AreThere) { EXPECT_FALSE(all_goldens().empty()) << goldens_folder(); }

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, testing::ValuesIn(all_goldens()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
