// Batch-invariant mode on a GPU: a prompt alone and in a batch, in any chunks, gives bit-identical logits and tokens.
#include <random>

#include "engine/invariance.h"
#include "fresh_seed.h"
#include "models/golden.h"

namespace millrace {
namespace {

struct Case {
  const char *name, *model;
  bool exact;
};

class CudaInvarianceTest : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Runner> load_case(int64_t rows) const {
    const std::string model = GetParam().model;
    LoadOptions options{.device = DeviceChoice::Cuda, .threads = 2, .exact = GetParam().exact, .context = 160};
    options.sequences = 33;
    options.rows = rows;
    options.logit_rows = 96;
    options.block_size = 16;
    options.batch_invariant = true;
    return load(model.starts_with("synthetic:") ? model : (goldens_folder() / model).string(), options);
  }
};

TEST_P(CudaInvarianceTest, ChunksDoNotChangeABit) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto runner = load_case(96);
  const auto tokens = random_prompt(*runner, random, 91);
  const auto whole = all_logits(*runner, tokens, 91);
  for (const int32_t chunk : {1, 2, 7, 65}) EXPECT_EQ(all_logits(*runner, tokens, chunk), whole) << chunk;
}

TEST_P(CudaInvarianceTest, AmongOthersATextIsTheSameAsAlone) {
  const uint32_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto runner = load_case(70);
  const Request asked{random_prompt(*runner, random, 97), {.temperature = 0, .logprobs = 2}, 40};
  const auto run = [&](int others) { return heard_among(others, asked, 120, *runner, random); };
  const auto alone = run(0);
  EXPECT_EQ(alone.size(), 40u);
  EXPECT_EQ(run(32), alone);
  EXPECT_EQ(run(5), alone);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaInvarianceTest,
                         testing::Values(Case{"exact", "llama_gqa", true},
                                         Case{"window", "mistral_sliding_window", false},
                                         Case{"softcap", "gemma2", false}, Case{"experts", "qwen3_moe", false},
                                         Case{"delta", "qwen3_next", false}, Case{"mamba2", "mamba2", false},
                                         Case{"bf16", "synthetic:smollm2-135m:bf16", false},
                                         Case{"q8_0", "synthetic:smollm2-135m:q8_0", false},
                                         Case{"q4_k", "synthetic:smollm2-135m:q4_k", false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
