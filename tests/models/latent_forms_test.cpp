// Latent attention in its absorbed and its materialised form: both against Hugging Face transformers, and in one step.
#include <gtest/gtest.h>

#include "hardware/detect.h"
#include "models/latent_forms.h"

namespace millrace {
namespace {

std::string best_materialised() {
  const Hardware hardware = detect_cpu(2);
  const LatentPromptOp::Problem any{DType::F32, Precision::Exact, 1, 8, 8, 8, 8, 16, 8, 8};
  for (const auto* kernel : LatentPromptOp::cpu()) {
    if (!LatentPromptOp::is_absorbed(*kernel) && kernel->can_run(any, hardware)) return std::string(kernel->name());
  }
  return "";
}

std::unique_ptr<Runner> load_form(const std::string& model, const std::string& form, int64_t rows) {
  return load(model, {.threads = 2,
                      .forced = {{"latent_prompt", form}},
                      .exact = true,
                      .context = 64,
                      .sequences = 3,
                      .rows = rows,
                      .logit_rows = rows,
                      .block_size = 16});
}

class LatentFormsTest : public testing::TestWithParam<Golden> {};

TEST_P(LatentFormsTest, EqualTransformersInChunksOfAnySize) {
  const Expected expected = read_expected(GetParam());
  const auto length = static_cast<int64_t>(expected.tokens.size());
  const std::string materialised = best_materialised();
  if (materialised.empty()) GTEST_SKIP() << "no kernel for this machine";
  for (const std::string& file : files_of(GetParam())) {
    for (const std::string& form : {std::string("absorbed"), materialised}) {
      auto runner = load_form(file, form, length);
      for (const int32_t chunk : {static_cast<int32_t>(length), 17, 3}) {
        SCOPED_TRACE(file + " " + form + " chunk " + std::to_string(chunk));
        std::vector<std::vector<float>> logits;
        const bool ran = materialises(*runner, [&] { logits = all_logits(*runner, expected.tokens, chunk); });
        EXPECT_EQ(ran, form != "absorbed");
        EXPECT_LE(logit_error(logits, expected), GetParam().tolerance);
      }
    }
  }
}

// A decode and two prompt chunks with different contexts, of the same text.
TEST_P(LatentFormsTest, ShareAStep) {
  const Expected expected = read_expected(GetParam());
  const std::string materialised = best_materialised();
  if (materialised.empty()) GTEST_SKIP() << "no kernel for this machine";
  const std::vector<int32_t>& tokens = expected.tokens;
  const auto length = static_cast<int32_t>(tokens.size());
  auto absorbed = load_form(GetParam().folder.string(), "absorbed", length);
  const auto alone = all_logits(*absorbed, tokens, length);
  auto runner = load_form(GetParam().folder.string(), materialised, 3 * length);
  const std::vector<StepPart> parts{{29, 1}, {7, 12}, {0, length - 1}};
  Matrix logits;
  EXPECT_TRUE(materialises(*runner, [&] { logits = forward_parts(*runner, tokens, parts); }));
  double difference = 0, largest = 0;
  int64_t row = 0;
  for (const StepPart& part : parts) {
    for (int32_t i = 0; i < part.rows; ++i, ++row) {
      const auto& want = alone[static_cast<size_t>(part.past + i)];
      for (size_t j = 0; j < want.size(); ++j) {
        largest = std::max(largest, std::abs(double(want[j])));
        const double d = std::abs(double(logits.row<float>(row)[j]) - want[j]);
        difference = std::isnan(d) ? d : std::max(difference, d);
      }
    }
  }
  ASSERT_EQ(row, logits.rows);
  EXPECT_LE(difference / largest, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, LatentFormsTest, testing::ValuesIn(latent_goldens()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace millrace
