#include "engine/measure/step_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/measure/benchmark.h"

namespace millrace {
namespace {

constexpr double kAsFast = 1.01;  // largest ratio of times that counts as equal
constexpr int64_t kTurns = 5;
constexpr int kRepetitions = 3;
constexpr int32_t kGenerated = 16;  // tokens per sequence and repetition

std::map<StepKind, BenchmarkCase> cases_of(const LoadOptions& options) {
  using Kind = BenchmarkCase::Kind;
  std::map<StepKind, BenchmarkCase> cases;
  cases[StepKind::Single] = {.kind = Kind::Generate, .tokens = kGenerated};
  cases[StepKind::Prompt] = {.kind = Kind::Prompt, .tokens = static_cast<int32_t>(options.rows)};
  if (options.sequences > 1) {
    cases[StepKind::Batch] = {
        .kind = Kind::Generate, .tokens = kGenerated, .batch = static_cast<int32_t>(options.sequences)};
  }
  return cases;
}

}  // namespace

std::string_view name(StepKind kind) {
  switch (kind) {
    case StepKind::Single:
      return "single streams";
    case StepKind::Batch:
      return "batches";
    case StepKind::Prompt:
      break;
  }
  return "prompts";
}

StepKind kind_of_step(int64_t rows, int64_t sequences) {
  if (rows <= 1) return StepKind::Single;
  return rows <= bucket_rows(sequences) ? StepKind::Batch : StepKind::Prompt;
}

double median_ratio(std::span<const StepTurn> turns) {
  std::vector<double> ratios;
  for (const StepTurn& turn : turns) {
    const double ratio = turn.after_us / turn.before_us;
    if (turn.before_us > 0 && turn.after_us > 0 && std::isfinite(ratio)) ratios.push_back(ratio);
  }
  if (ratios.empty()) return std::numeric_limits<double>::infinity();
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

bool survives(std::span<const StepTurn> turns) { return median_ratio(turns) <= kAsFast; }

// A model is loaded anew for every turn: memory may not hold it twice.
StepTurns time_in_turns(const std::shared_ptr<const WeightSource>& source, const LoadOptions& options,
                        std::shared_ptr<const PlanCache> before, std::shared_ptr<const PlanCache> after,
                        const std::function<void(int64_t done, int64_t total)>& progress) {
  const auto cases = cases_of(options);
  LoadOptions sized = options;
  sized.context = 0;
  sized.measure = false;  // `options` come from a runner that measured the machine
  std::vector<BenchmarkCase> all;
  for (const auto& [kind, test] : cases) all.push_back(test);
  size_for(sized, all);
  StepTurns turns;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    for (auto& [kind, test] : cases) turns[kind].emplace_back();
    for (int64_t i = 0; i < 2; ++i) {
      progress(2 * turn + i, 2 * kTurns);
      const bool is_after = (turn + i) % 2 == 1;  // the order alternates, as a machine may get slower while it warms up
      sized.plans = is_after ? after : before;
      Runner runner(source, sized);
      runner.load();
      for (const auto& [kind, test] : cases) {
        const double rate = run_benchmark(runner, test, kRepetitions).median;
        StepTurn& to = turns[kind].back();
        (is_after ? to.after_us : to.before_us) = 1e6 * double(test.tokens) * test.batch / rate;
      }
    }
  }
  progress(2 * kTurns, 2 * kTurns);
  return turns;
}

}  // namespace millrace
