// Batch-invariant mode on a GPU: a prompt alone and among others, in any chunks, gives the same logits and tokens bit
// for bit.
#include <random>

#include "engine/engine.h"
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
  static std::vector<int32_t> random_prompt(const Runner& runner, std::mt19937& random, size_t length) {
    std::vector<int32_t> prompt(length);
    for (auto& t : prompt) t = static_cast<int32_t>(random() % static_cast<uint32_t>(runner.model().config().vocab));
    return prompt;
  }
};

TEST_P(CudaInvarianceTest, ChunksDoNotChangeABit) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto runner = load_case(96);
  const auto tokens = random_prompt(*runner, random, 91);
  const auto whole = all_logits(*runner, tokens, 91);
  for (const int32_t chunk : {1, 2, 7, 65}) EXPECT_EQ(all_logits(*runner, tokens, chunk), whole) << chunk;
}

TEST_P(CudaInvarianceTest, AmongOthersATextIsTheSameAsAlone) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  auto runner = load_case(70);
  const Request asked{random_prompt(*runner, random, 97), {.temperature = 0, .logprobs = 2}, 40};
  const auto other = [&] {
    return Request{random_prompt(*runner, random, 1 + random() % 120), {}, 1 + static_cast<int32_t>(random() % 30)};
  };
  const auto run = [&](int others) {
    Engine engine(*runner);
    std::vector<std::pair<int32_t, float>> heard;
    for (int i = 0; i < others / 2; ++i) engine.submit(other());
    const RequestId id = engine.submit(asked);
    for (int i = others / 2; i < others; ++i) engine.submit(other());
    while (engine.step([&](const Emission& e) {
      if (e.id == id) heard.emplace_back(e.token, e.logprobs->chosen.logprob);
    })) {
    }
    return heard;
  };
  const auto alone = run(0);
  EXPECT_EQ(alone.size(), 40u);
  EXPECT_EQ(run(32), alone);
  EXPECT_EQ(run(5), alone);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaInvarianceTest,
                         testing::Values(Case{"exact", "llama_gqa", true},
                                         Case{"window", "mistral_sliding_window", false},
                                         Case{"softcap", "gemma2", false},
                                         Case{"bf16", "synthetic:smollm2-135m:bf16", false},
                                         Case{"q8_0", "synthetic:smollm2-135m:q8_0", false},
                                         Case{"q4_k", "synthetic:smollm2-135m:q4_k", false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
