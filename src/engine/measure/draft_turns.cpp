#include "engine/measure/draft_turns.h"

#include <chrono>
#include <ctime>
#include <random>

#include "base/interrupt.h"
#include "engine/engine.h"

namespace millrace {
namespace {

std::vector<std::vector<int32_t>> random_prompts(const Runner& runner, const BenchmarkCase& test) {
  std::mt19937 random(42);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(runner.model().config().vocab - 1));
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(test.batch));
  for (auto& prompt : prompts) {
    prompt.resize(static_cast<size_t>(std::max(1, test.depth)));
    for (int32_t& one : prompt) one = token(random);
  }
  return prompts;
}

struct Rates {
  double wall = 0, cpu = 0;  // tokens per second
};

// The prefix cache then holds the prompts, so that all sequences begin in the same step.
Rates generate(Runner& runner, Drafter* drafter, const BenchmarkCase& test,
               const std::vector<std::vector<int32_t>>& prompts, DraftTurns& totals) {
  EngineOptions options;
  if (drafter != nullptr) options.draft_with(*drafter);
  Engine engine(runner, options);
  engine.prepare_pace();
  const auto run = [&](int32_t tokens) {
    for (size_t i = 0; i < prompts.size(); ++i) engine.submit({prompts[i], {.temperature = 1, .seed = 1 + i}, tokens});
    int64_t generated = 0;
    while (engine.step([&](const Emission& e) { generated += e.token >= 0 ? 1 : 0; })) throw_if_interrupted();
    return static_cast<double>(generated);
  };
  run(1);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::clock_t cpu = std::clock();
  const double tokens = run(test.tokens);
  const double cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  const Rates rates{tokens / std::chrono::duration<double>(Clock::now() - begin).count(),
                    tokens / std::max(1e-6, cpu_seconds)};
  EngineStats stats;
  engine.fill(stats);
  totals.drafted += stats.drafted_tokens;
  totals.accepted += stats.accepted_tokens;
  return rates;
}

}  // namespace

double DraftTurns::median(double Turn::*rate) const {
  std::vector<double> values;
  for (const Turn& turn : turns) values.push_back(turn.*rate);
  return median_of(std::move(values));
}

double DraftTurns::ratio() const {
  std::vector<double> values;
  for (const Turn& turn : turns) values.push_back(turn.with / turn.without);
  return median_of(std::move(values));
}

double DraftTurns::cpu_ratio() const {
  std::vector<double> values;
  for (const Turn& turn : turns) values.push_back(turn.cpu_with / turn.cpu_without);
  return median_of(std::move(values));
}

DraftTurns compare_drafts(Runner& runner, Drafter& drafter, const BenchmarkCase& test, int repetitions) {
  DraftTurns result{test, {}, 0, 0};
  const auto prompts = random_prompts(runner, test);
  for (int i = -1; i < repetitions; ++i) {
    Rates without, with;
    const auto run = [&](bool drafts) {
      (drafts ? with : without) = generate(runner, drafts ? &drafter : nullptr, test, prompts, result);
    };
    run(i % 2 != 0);  // the side that begins alternates
    run(i % 2 == 0);
    if (i >= 0) result.turns.push_back({without.wall, with.wall, without.cpu, with.cpu});
  }
  return result;
}

}  // namespace millrace
