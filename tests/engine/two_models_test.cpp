// Two models in one process share a thread pool. Their steps alternate, and each gives the same tokens as alone.
#include <gtest/gtest.h>

#include <thread>

#include "engine/engine.h"
#include "models/golden.h"

namespace millrace {
namespace {

LoadOptions options(std::shared_ptr<ThreadPool> pool) {
  LoadOptions o{.threads = 2, .context = 60, .sequences = 2, .rows = 16, .block_size = 16};
  o.pool = std::move(pool);
  return o;
}

class Stream {
 public:
  explicit Stream(Runner& runner) : engine_(runner) {
    for (int32_t i = 0; i < 2; ++i) engine_.submit({{1 + i, 2, 3, 5}, {.temperature = 0}, 30});
  }
  bool step() {
    return engine_.step([&](const Emission& e) { tokens_.push_back(e.token); });
  }
  std::vector<int32_t> rest() {
    while (step()) {
    }
    return tokens_;
  }

 private:
  Engine engine_;
  std::vector<int32_t> tokens_;
};

std::vector<int32_t> alone(const std::string& model) {
  auto runner = load(model, options(nullptr));
  return Stream(*runner).rest();
}

TEST(TwoModels, StepsInTurnsGiveTheTokensOfEachAlone) {
  const std::string a = (goldens_folder() / "llama_gqa").string(), b = (goldens_folder() / "gemma3").string();
  const auto pool = std::make_shared<ThreadPool>(2);
  auto first = load(a, options(pool)), second = load(b, options(pool));
  Stream one(*first), other(*second);
  while (one.step() | other.step()) {
  }
  EXPECT_EQ(one.rest(), alone(a));
  EXPECT_EQ(other.rest(), alone(b));
}

TEST(TwoModels, OneModelTwiceIsTwoStates) {
  const std::string a = (goldens_folder() / "qwen3").string();
  const auto pool = std::make_shared<ThreadPool>(2);
  auto first = load(a, options(pool)), second = load(a, options(pool));
  Stream one(*first), other(*second);
  one.step();
  while (one.step() | other.step()) {
  }
  EXPECT_EQ(one.rest(), alone(a));
  EXPECT_EQ(other.rest(), alone(a));
}

// Engines on two threads take turns on the pool.
TEST(TwoModels, EnginesOnTwoThreadsShareOnePool) {
  const std::string a = (goldens_folder() / "llama_gqa").string(), b = (goldens_folder() / "gemma3").string();
  const auto pool = std::make_shared<ThreadPool>(2);
  auto first = load(a, options(pool)), second = load(b, options(pool));
  std::vector<int32_t> tokens;
  std::thread thread([&] { tokens = Stream(*second).rest(); });
  EXPECT_EQ(Stream(*first).rest(), alone(a));
  thread.join();
  EXPECT_EQ(tokens, alone(b));
}

}  // namespace
}  // namespace millrace
