// A Hugging Face folder with FP8 weights off the exact path, which the goldens do not take.
#include <gmock/gmock.h>

#include <cmath>

#include "models/golden.h"

namespace millrace {
namespace {

using testing::HasSubstr;

Golden fp8_golden() {
  for (const Golden& golden : all_goldens()) {
    if (golden.name == "qwen3_fp8") return golden;
  }
  throw std::runtime_error("there is no golden qwen3_fp8");
}

TEST(QuantizedFolder, Fp8StaysInEightBitsAndThePlanSaysHow) {
  const Golden golden = fp8_golden();
  const Expected expected = read_expected(golden);
  const auto length = static_cast<int64_t>(expected.tokens.size());
  LoadOptions options{.threads = 2, .context = length, .rows = length, .logit_rows = length, .block_size = 16};
  const auto runner = load(golden.folder.string(), options);
  const std::string plan = runner->memory().to_string();
  EXPECT_THAT(plan, testing::AllOf(HasSubstr("packed weights (FP8 as Q8_0)"), HasSubstr("repacking at load")));
  const auto rows = all_logits(*runner, expected.tokens, static_cast<int32_t>(length));
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.rows.size(); ++i) {
    const auto& row = rows[static_cast<size_t>(expected.rows[i])];
    for (size_t j = 0; j < row.size(); ++j) {
      const double want = expected.logits[i * row.size() + j];
      error += std::pow(row[j] - want, 2);
      norm += want * want;
    }
  }
  EXPECT_LT(std::sqrt(error / norm), 0.05);
  EXPECT_GT(error, 0);  // the exact path would prove nothing
  options.exact = true;
  EXPECT_THAT(load(golden.folder.string(), options)->memory().to_string(),
              testing::AllOf(testing::Not(HasSubstr("FP8 as")), HasSubstr("read in place")));
}

}  // namespace
}  // namespace millrace
