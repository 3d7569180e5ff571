// The time of steps is charged to the choices that they computed rows for.
#include <map>
#include <numeric>

#include "engine/engine.h"
#include "models/golden.h"

namespace millrace {
namespace {

TEST(Ledger, SharesOfAllChoicesSumToTheTimeOfSteps) {
  const auto runner =
      load((goldens_folder() / "llama_gqa").string(),
           {.threads = 1, .context = 96, .sequences = 4, .rows = 16, .logit_rows = 16, .block_size = 16});
  Engine engine(*runner);
  for (const int32_t length : {5, 40, 17, 1, 33, 8}) {  // more than run at once, and chunks
    std::vector<int32_t> prompt(static_cast<size_t>(length));
    std::iota(prompt.begin(), prompt.end(), length);
    Request request{prompt, {.temperature = 0}, 12};
    request.choices = length == 17 ? 3 : 1;
    engine.submit(std::move(request));
  }
  std::map<std::pair<RequestId, int32_t>, double> ledger;
  while (engine.step([&](const Emission& e) {
    const auto key = std::pair(e.id, e.choice);
    EXPECT_GE(e.compute_ms, ledger[key]);
    ledger[key] = e.compute_ms;
  })) {
  }
  EngineStats stats;
  engine.fill(stats);
  double sum = 0;
  for (const auto& [choice, ms] : ledger) sum += ms;
  EXPECT_EQ(ledger.size(), 8u);
  EXPECT_NEAR(sum, stats.busy_seconds * 1e3, 1e-6 * sum);
}

}  // namespace
}  // namespace millrace
