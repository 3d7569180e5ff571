// A step only looks plans up: every batch within the limits of a runner must have been planned when it was loaded.
#include <random>

#include "engine/where.h"
#include "models/golden.h"

namespace millrace {
namespace {

// Random batches: prompts and decodes of several sequences, with logits or hidden states of any of their rows.
class RandomSteps {
 public:
  RandomSteps(Runner& runner, uint32_t seed)
      : runner_(runner),
        limits_(runner.options()),
        random_(seed),
        step_(limits_.rows, limits_.sequences, limits_.logit_rows) {}

  void run_one() {
    const auto context = static_cast<int32_t>(limits_.context);
    std::vector<BlockTable> tables;
    std::vector<Slot> slots;
    std::vector<int32_t> tokens(static_cast<size_t>(limits_.rows), 5);
    step_.clear();
    auto rows = static_cast<int32_t>(limits_.rows), wanted = static_cast<int32_t>(limits_.logit_rows);
    for (int32_t left = up_to(static_cast<int32_t>(limits_.sequences)); left > 0; --left) {
      const int32_t count = below(3) == 0 ? up_to(rows - left + 1) : 1;
      const int32_t past = below(context - count + 1);
      tables.push_back(runner_.state().new_table(context));
      ASSERT_TRUE(tables.back().reserve(past + count));
      slots.push_back(runner_.state().new_slot());
      // Logits of [begin, middle), hidden states of [middle, end).
      const int32_t most = std::min(count, wanted - left + 1), begin = below(count);
      const int32_t end = std::min(count, begin + below(most + 1)), middle = begin + below(end - begin + 1);
      step_.add(std::span(tokens).first(static_cast<size_t>(count)), past, past + count, tables.back().pages(),
                {begin, middle}, {middle, end}, slots.back().id());
      wanted -= end - begin;
      rows -= count;
    }
    const Batch batch = step_.batch();
    const Matrix logits = runner_.forward(batch);
    EXPECT_EQ(logits.rows, std::ssize(batch.logit_rows) - batch.without_logits);
  }

 private:
  int32_t below(int32_t n) { return std::uniform_int_distribution<int32_t>(0, n - 1)(random_); }
  int32_t up_to(int32_t n) { return 1 + below(n); }

  Runner& runner_;
  const LoadOptions& limits_;
  std::mt19937 random_;
  StepBatch step_;
};

class PlannedStepsTest : public testing::TestWithParam<Where> {};

TEST_P(PlannedStepsTest, EveryBatchWithinTheLimits) {
  struct Limits {
    int64_t rows, logit_rows, sequences, context;
  };
  uint32_t seed = 0;
  for (const char* model : {"llama_gqa", "gemma3", "chatglm2", "opt", "mistral_sliding_window", "qwen3"}) {
    for (const Limits& limits :
         {Limits{37, 5, 3, 90}, Limits{1, 1, 1, 33}, Limits{64, 64, 7, 128}, Limits{9, 9, 9, 20}}) {
      for (const bool invariant : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} rows, seed {}", model, limits.rows, seed));
        LoadOptions options{
            .threads = 1, .context = limits.context, .sequences = limits.sequences, .rows = limits.rows};
        options.logit_rows = limits.logit_rows;
        options.block_size = 16;
        options.batch_invariant = invariant;
        const auto runner = load((goldens_folder() / model).string(), at(GetParam(), options));
        RandomSteps steps(*runner, seed++);
        for (int i = 0; i < 25; ++i) steps.run_one();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, PlannedStepsTest, testing::ValuesIn(tested_places()), name_of);

}  // namespace
}  // namespace millrace
