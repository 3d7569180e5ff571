// A step allocates nothing once the model is loaded.
#include "count_allocations.h"
#include "models/golden.h"

namespace millrace {
namespace {

TEST(Allocation, StepsOfAnySizeAllocateNothing) {
  for (const bool exact : {true, false}) {
    auto runner = load(
        (goldens_folder() / "gemma2").string(),
        {.threads = 2, .exact = exact, .context = 128, .sequences = 3, .rows = 64, .logit_rows = 3, .block_size = 16});
    std::vector<BlockTable> tables;
    for (int i = 0; i < 3; ++i) {
      tables.push_back(runner->state().new_table(128));
      ASSERT_TRUE(tables.back().reserve(128));
    }
    const std::vector<int32_t> tokens(64, 5);
    StepBatch step(64, 3, 3);
    const int64_t before = allocations();
    for (const int32_t rows : {1, 2, 7, 20}) {
      for (const int32_t past : {0, 17, 60}) {
        step.clear();
        for (auto& table : tables)
          step.add(std::span(tokens).first(rows), past, past + rows, table.pages(), StepBatch::Logits::Last);
        runner->forward(step.batch());
      }
    }
    EXPECT_EQ(allocations(), before) << (exact ? "exact" : "fast");
  }
}

}  // namespace
}  // namespace millrace
