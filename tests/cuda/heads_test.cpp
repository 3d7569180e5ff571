// EAGLE-3 heads in bf16 on a GPU against the same heads in f32 on the CPU.
#include <cmath>

#include "engine/head_drafter.h"
#include "formats/weight_source.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr int32_t kPrompt = 24, kChain = 3;

// The logits of the row behind the prompt and of the chain after it. The chain's tokens are fixed.
std::vector<float> head_logits(DeviceChoice device, bool exact) {
  LoadOptions options{.device = device, .threads = 2, .exact = exact, .context = 64, .rows = kPrompt};
  options.heads = open_weights("synthetic:eagle3-smollm2-135m:bf16");
  Runner target(open_weights("synthetic:smollm2-135m:bf16"), options);
  target.load();
  const auto heads = HeadDrafter::plan(target, options.heads);
  heads->load();
  std::vector<int32_t> tokens(kPrompt + kChain), rows(kPrompt - 1);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 977 + 5);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);

  BlockTable table = target.state().new_table(64);
  EXPECT_TRUE(table.reserve(64));
  StepBatch step(kPrompt, 1, 1);
  step.add(std::span(tokens).first(kPrompt), 0, kPrompt, table.pages(), StepBatch::Logits::Last);
  target.run(step.batch());
  std::vector<float> all;
  for (int32_t i = 0; i <= kChain; ++i) {
    const int32_t past = i == 0 ? 0 : kPrompt - 2 + i, count = i == 0 ? kPrompt - 1 : 1;
    step.clear();
    step.add(std::span(tokens).subspan(static_cast<size_t>(past) + 1, static_cast<size_t>(count)), past, past + count,
             table.pages(), StepBatch::Logits::Last);
    Batch batch = step.batch();
    batch.features =
        i == 0 ? DraftFeatures{target.features(), rows, false} : DraftFeatures{heads->features(), {}, true};
    const std::vector<int32_t> own{0};
    if (i > 0) batch.features.rows = own;
    const Matrix logits = heads->forward(batch);
    EXPECT_EQ(logits.rows, 1);
    all.insert(all.end(), logits.row<float>(0), logits.row<float>(0) + logits.cols);
  }
  return all;
}

TEST(CudaHeads, Bf16StaysNearTheCpu) {
  const auto want = head_logits(DeviceChoice::Cpu, true), got = head_logits(DeviceChoice::Cuda, false);
  ASSERT_EQ(got.size(), want.size());
  double wanted = 0, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    wanted += double(want[i]) * want[i];
    error += double(got[i] - want[i]) * (got[i] - want[i]);
  }
  EXPECT_LT(std::sqrt(error / wanted), 0.1);  // 30 layers of random weights amplify roundings
}

}  // namespace
}  // namespace millrace
