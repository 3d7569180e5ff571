// With --batch-invariant a prompt gives the same bits in chunks of any size, whatever state its layers keep.
#include <gtest/gtest.h>

#include "models/golden.h"

namespace millrace {
namespace {

class ChunksTest : public testing::TestWithParam<const char*> {};

TEST_P(ChunksTest, OfAnySizeGiveTheSameBits) {
  const Golden golden{GetParam(), goldens_folder() / GetParam()};
  const Expected expected = read_expected(golden);
  const auto length = static_cast<int64_t>(expected.tokens.size());
  const auto logits = [&](int32_t chunk) {
    auto runner = load(golden.folder.string(), {.threads = 2,
                                                .exact = true,
                                                .context = length,
                                                .rows = length,
                                                .logit_rows = length,
                                                .block_size = 16,
                                                .batch_invariant = true});
    return all_logits(*runner, expected.tokens, chunk);
  };
  const auto whole = logits(static_cast<int32_t>(length));
  EXPECT_EQ(logits(1), whole);
  EXPECT_EQ(logits(7), whole);
}

// Experts, latent rows, delta nets, Mamba-2 alone and beside attention, short convolutions.
INSTANTIATE_TEST_SUITE_P(Models, ChunksTest,
                         testing::Values("glm4_moe", "deepseek_v3", "qwen3_next", "qwen3_5", "mamba2", "granite_hybrid",
                                         "falcon_h1", "nemotron_h", "lfm2"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace millrace
