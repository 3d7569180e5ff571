// The logits of a prompt do not depend on its chunks or on the rest of the batch.
#include <cmath>
#include <numeric>
#include <random>

#include "models/golden.h"

namespace millrace {
namespace {

constexpr double kTolerance = 1e-5;  // relative to the largest logit, in f32

double distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double largest = 0, error = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      largest = std::max<double>(largest, std::abs(a[i][j]));
      error = std::max<double>(error, std::abs(a[i][j] - b[i][j]));
    }
  }
  return error / largest;
}

LoadOptions exact(int64_t sequences = 1, int block_size = 16) {
  return {.threads = 2,
          .exact = true,
          .context = 128,
          .sequences = sequences,
          .rows = 256,
          .logit_rows = 256,
          .block_size = block_size};
}

std::vector<int32_t> random_tokens(const Runner& runner, int32_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(runner.model().config().vocab - 1));
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (auto& t : tokens) t = token(random);
  return tokens;
}

class BatchTest : public testing::TestWithParam<const char*> {
 protected:
  std::string model() const { return (goldens_folder() / GetParam()).string(); }
};

TEST_P(BatchTest, ChunksGiveTheSameLogits) {
  for (const int block_size : {16, 32, 128}) {
    auto runner = load(model(), exact(1, block_size));
    const auto tokens = random_tokens(*runner, 77, 1);
    const auto whole = all_logits(*runner, tokens, 77);
    for (const int32_t chunk : {1, 5, 16, 40}) {
      EXPECT_LE(distance(whole, all_logits(*runner, tokens, chunk)), kTolerance)
          << "chunks of " << chunk << ", pages of " << block_size;
    }
  }
}

// Four sequences of different lengths in one step: two decodes, two chunks.
TEST_P(BatchTest, MixedSequencesGiveTheSameLogits) {
  auto runner = load(model(), exact(4));
  struct Stream {
    std::vector<int32_t> tokens;
    int32_t before;  // tokens in the cache when the mixed step runs
  };
  std::vector<Stream> streams{{random_tokens(*runner, 61, 2), 60},
                              {random_tokens(*runner, 18, 3), 0},
                              {random_tokens(*runner, 100, 4), 64},
                              {random_tokens(*runner, 2, 5), 1}};
  std::vector<std::vector<std::vector<float>>> alone;
  for (const auto& s : streams) alone.push_back(all_logits(*runner, s.tokens, static_cast<int32_t>(s.tokens.size())));

  StepBatch step(256, 4, 256);
  std::vector<BlockTable> tables;
  for (const auto& s : streams) {
    tables.push_back(runner->state().new_table(128));
    ASSERT_TRUE(tables.back().reserve(static_cast<int32_t>(s.tokens.size())));
    if (s.before == 0) continue;
    step.clear();
    step.add(std::span(s.tokens).first(s.before), 0, s.before, tables.back().pages(), StepBatch::Logits::None);
    runner->forward(step.batch());
  }
  step.clear();
  for (size_t i = 0; i < streams.size(); ++i) {
    const auto& s = streams[i];
    step.add(std::span(s.tokens).subspan(s.before), s.before, static_cast<int32_t>(s.tokens.size()), tables[i].pages(),
             StepBatch::Logits::All);
  }
  const Matrix logits = runner->forward(step.batch());
  int64_t row = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    std::vector<std::vector<float>> mixed, wanted;
    for (size_t position = streams[i].before; position < streams[i].tokens.size(); ++position, ++row) {
      mixed.emplace_back(logits.row<float>(row), logits.row<float>(row) + logits.cols);
      wanted.push_back(alone[i][position]);
    }
    EXPECT_LE(distance(wanted, mixed), kTolerance) << "sequence " << i;
  }
}

class WantedRowsTest : public BatchTest {};

// After Pass::narrow only wanted rows are computed. Any subset must give the logits that all rows give, also beside a
// chunk that wants none, and must leave the same state in the cache.
TEST_P(WantedRowsTest, GiveTheSameLogits) {
  auto runner = load(model(), exact(2));
  const auto tokens = random_tokens(*runner, 50, 8), others = random_tokens(*runner, 30, 9);
  const auto whole = all_logits(*runner, tokens, 50);
  for (const StepBatch::Rows wanted : {StepBatch::Rows{39, 40}, {0, 1}, {7, 19}, {0, 0}, {0, 40}}) {
    BlockTable table = runner->state().new_table(64), other = runner->state().new_table(64);
    ASSERT_TRUE(table.reserve(50) && other.reserve(30));
    StepBatch step(256, 2, 256);
    step.add(others, 0, 30, other.pages(), StepBatch::Logits::None);
    step.add(std::span(tokens).first(40), 0, 50, table.pages(), wanted, {});
    const auto compare = [&](int32_t first) {
      const Matrix logits = runner->forward(step.batch());
      for (int32_t row = 0; row < logits.rows; ++row) {
        const std::vector<float> got(logits.row<float>(row), logits.row<float>(row) + logits.cols);
        EXPECT_LE(distance({whole[static_cast<size_t>(first + row)]}, {got}), kTolerance)
            << "position " << first + row << " of " << wanted.begin << " to " << wanted.end;
      }
      return logits.rows;
    };
    EXPECT_EQ(compare(wanted.begin), wanted.size());
    step.clear();
    step.add(std::span(tokens).subspan(40), 40, 50, table.pages(), StepBatch::Logits::All);
    EXPECT_EQ(compare(40), 10);
  }
}

// A narrower KV format adds its rounding error, which random weights amplify about ten times.
TEST_P(BatchTest, KvFormatsStayNearF32) {
  auto options = exact();
  auto reference = load(model(), options);
  const auto tokens = random_tokens(*reference, 60, 6);
  const auto wanted = all_logits(*reference, tokens, 60);
  const int head_dim = reference->model().config().head_dim;
  for (const auto& [dtype, tolerance] : std::vector<std::pair<DType, double>>{
           {DType::F16, 1e-2}, {DType::BF16, 1e-1}, {DType::Q8_0, 1e-1}, {kFp8, 0.5}}) {
    if (head_dim % info(dtype).block != 0) continue;
    options.kv_type = dtype;
    auto runner = load(model(), options);
    const double error = distance(wanted, all_logits(*runner, tokens, 60));
    EXPECT_LE(error, tolerance) << name(dtype);
    EXPECT_GT(error, 0) << name(dtype) << " cannot be lossless: was it used?";
  }
}

// With f32 weights the fast path rounds only the KV cache.
TEST_P(BatchTest, FastPathComputesInF32WhereWeightsAreF32) {
  auto options = exact();
  options.kv_type = DType::F16;
  auto reference = load(model(), options);
  options.exact = false;
  auto fast = load(model(), options);
  const auto tokens = random_tokens(*reference, 60, 7);
  for (const int32_t chunk : {60, 7, 1}) {
    EXPECT_LE(distance(all_logits(*reference, tokens, chunk), all_logits(*fast, tokens, chunk)), kTolerance) << chunk;
  }
}

std::string model_name(const testing::TestParamInfo<const char*>& model) { return model.param; }

INSTANTIATE_TEST_SUITE_P(Models, BatchTest,
                         testing::Values("llama_gqa", "mistral_sliding_window", "gemma2", "gemma3", "qwen3", "opt",
                                         "chatglm2", "gpt2", "gpt_neox", "cohere_qk_norm"),
                         model_name);
INSTANTIATE_TEST_SUITE_P(Models, WantedRowsTest,
                         testing::Values("llama_gqa", "mistral_sliding_window", "gemma2", "gemma3", "qwen2", "qwen3",
                                         "phi3_partial_rotary", "opt", "opt_350m", "chatglm2",
                                         "chatglm2_residual_after_norm", "glm4_0414", "cohere2", "gpt_neox",
                                         "nemotron"),
                         model_name);

}  // namespace
}  // namespace millrace
