// Batch-invariant mode: a prompt gives the same logits and tokens bit for bit, alone or beside others, in any chunks.
#include <gmock/gmock.h>

#include <random>

#include "engine/invariance.h"
#include "fresh_seed.h"
#include "models/golden.h"

namespace millrace {
namespace {

struct Case {
  std::string model;
  bool exact;
  DType kv;
};

class InvarianceTest : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Runner> load_case(int64_t rows, bool invariant = true) const {
    LoadOptions options{.threads = 1, .exact = GetParam().exact, .kv_type = GetParam().kv, .context = 96};
    options.sequences = 33;
    options.rows = rows;
    options.logit_rows = 96;
    options.block_size = 16;
    options.batch_invariant = invariant;
    return load((goldens_folder() / GetParam().model).string(), options);
  }
};

TEST_P(InvarianceTest, ChunksDoNotChangeABit) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto runner = load_case(96);
  const auto tokens = random_prompt(*runner, random, 61);
  const auto whole = all_logits(*runner, tokens, 61);
  for (const int32_t chunk : {1, 2, 7, 32}) EXPECT_EQ(all_logits(*runner, tokens, chunk), whole) << chunk;
}

TEST_P(InvarianceTest, AmongOthersATextIsTheSameAsAlone) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto runner = load_case(48);
  const Request asked{random_prompt(*runner, random, 37), {.temperature = 0, .logprobs = 2}, 24};
  const auto run = [&](int others) { return heard_among(others, asked, 60, *runner, random); };
  const auto alone = run(0);
  EXPECT_EQ(alone.size(), 24u);
  EXPECT_EQ(run(32), alone);
  EXPECT_EQ(run(5), alone);
}

INSTANTIATE_TEST_SUITE_P(Models, InvarianceTest,
                         testing::Values(Case{"llama_gqa", true, DType::F32}, Case{"llama_gqa", false, DType::F16},
                                         Case{"mistral_sliding_window", false, DType::F16},
                                         Case{"gemma2", false, DType::F32}, Case{"qwen3", false, DType::BF16},
                                         Case{"llama_f16", false, DType::F16},
                                         Case{"llama_bf16_smollm2", false, DType::BF16}),
                         [](const auto& info) {
                           return info.param.model + (info.param.exact ? "_exact_" : "_fast_") +
                                  std::string(name(info.param.kv));
                         });

// Plans may depend on the number of threads, a row's bits may not.
TEST(Invariance, ThreadsDoNotChangeABit) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  for (const char* model : {"llama_gqa", "qwen3_next", "qwen3_5_moe", "granite_hybrid", "mamba2", "deepseek_v2"}) {
    for (const bool exact : {false, true}) {
      std::vector<std::vector<std::vector<float>>> logits;
      for (const int threads : {1, 2, 3}) {
        LoadOptions options{.threads = threads, .exact = exact, .context = 96, .rows = 96, .logit_rows = 96};
        options.batch_invariant = true;
        auto runner = load((goldens_folder() / model).string(), options);
        std::mt19937 random(seed);
        logits.push_back(all_logits(*runner, random_prompt(*runner, random, 61), 61));
      }
      EXPECT_EQ(logits[1], logits[0]) << model << (exact ? " exact" : "");
      EXPECT_EQ(logits[2], logits[0]) << model << (exact ? " exact" : "");
    }
  }
}

// Quantized weights, so that the kernels used for serving are covered.
TEST(Invariance, QuantizedRowsAreTheSameInEveryBatch) {
  LoadOptions options{.threads = 1, .context = 256, .sequences = 4, .rows = 64, .logit_rows = 64};
  options.batch_invariant = true;
  for (const char* model : {"synthetic:smollm2-135m:q4_0", "synthetic:smollm2-135m:q8_0"}) {
    auto runner = load(model, options);
    std::vector<int32_t> tokens(24);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 997 % 40000);
    const auto whole = all_logits(*runner, tokens, 24);
    EXPECT_EQ(all_logits(*runner, tokens, 1), whole) << model;
    EXPECT_EQ(all_logits(*runner, tokens, 5), whole) << model;
  }
}

}  // namespace
}  // namespace millrace
