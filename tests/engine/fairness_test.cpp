// A simulated server under a closed loop of clients: steps take the time that a formula gives them, no clock is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/scheduler.h"

namespace millrace {
namespace {

constexpr int32_t kPageTokens = 64, kWords = 512;

// Roughly an 8B on a large GPU: reading the weights, computing the rows, and reading the keys and values of decodes.
constexpr double kWeightsUs = 4e3, kRowUs = 20, kPositionUs = 0.03;

StepEstimate simulated_estimate() {
  StepEstimate estimate;
  for (double rows = 1; rows <= 4096; rows *= 2) estimate.by_rows.emplace_back(rows, kWeightsUs + kRowUs * rows);
  estimate.decode_us_per_position = kPositionUs;
  return estimate;
}

struct ClosedLoop {
  int clients = 256;
  int32_t answer = 128;
  std::vector<int32_t> lengths;  // of prompts, drawn at random
};

struct Served {
  int32_t prompt = 0;
  double first_ms = 0, whole_ms = 0;  // from arrival to the first and to the last token
};

class Simulation {
 public:
  explicit Simulation(const ClosedLoop& load)
      : load_(load),
        cache_(layout(), {DType::F32, kPageTokens, 64 * 6000, 0}),
        pacer_(simulated_estimate, {}),
        scheduler_(cache_, {.rows = 2048, .sequences = load.clients, .logit_rows = load.clients}, pacer_),
        batch_(2048, load.clients, load.clients) {}

  // Each client sends its next request when it has the answer to the last one.
  std::vector<Served> run(size_t requests) {
    for (int i = 0; i < load_.clients; ++i) ask();
    while (done_.size() < requests) step();
    return done_;
  }

 private:
  static StateLayout layout() {
    StateLayout layout;
    layout.paged({1, 1, 1});
    return layout;
  }

  void ask() {
    auto group = std::make_shared<Group>();
    group->id = next_id_++;
    group->arrival = now_us_ / 1e6;
    group->request.prompt.resize(static_cast<size_t>(load_.lengths[random_() % load_.lengths.size()]));
    for (auto& token : group->request.prompt) token = static_cast<int32_t>(random_() % kWords);
    const auto longest = static_cast<int32_t>(group->request.prompt.size()) + load_.answer;
    scheduler_.add(std::make_unique<Sequence>(group, 0, cache_.new_table(longest), longest, kWords));
    begun_[group->id] = now_us_;
  }

  void step() {
    scheduler_.admit(now_us_ / 1e6);
    Scheduler::Plan plan;
    scheduler_.compose(plan, batch_);
    ASSERT_FALSE(plan.parts.empty());
    scheduler_.started(plan);
    const double us = estimate_.us(plan.decodes.rows, plan.decodes.positions, plan.chunk, plan.chunk_past);
    now_us_ += us;
    pacer_.record(plan.decodes, plan.chunk, plan.chunk_past, us);
    int ended = 0;
    for (const auto& part : plan.parts) {
      Sequence& s = *part.sequence;
      const bool completes = part.completes();
      scheduler_.advance(s, part.rows);
      if (!completes) continue;
      const double ms = (now_us_ - begun_.at(s.id())) / 1e3;
      if (s.generated() == 0) first_ms_[s.id()] = ms;
      s.take(0);
      if (!s.finished()) continue;
      done_.push_back({s.prompt_length(), first_ms_.at(s.id()), ms});
      ++ended;
    }
    scheduler_.retire();
    for (; ended > 0; --ended) ask();
  }

  ClosedLoop load_;
  StateCache cache_;
  StepEstimate estimate_ = simulated_estimate();
  StepPacer pacer_;
  Scheduler scheduler_;
  StepBatch batch_;
  std::mt19937 random_{7};
  double now_us_ = 0;
  RequestId next_id_ = 1;
  std::map<RequestId, double> begun_, first_ms_;
  std::vector<Served> done_;
};

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

TEST(Fairness, PromptsOfAlmostEqualLengthWaitEquallyLong) {
  ClosedLoop load;
  for (int32_t length = 980; length <= 1020; ++length) load.lengths.push_back(length);
  const auto done = Simulation(load).run(1400);
  std::vector<double> whole;
  for (size_t i = 600; i < done.size(); ++i) whole.push_back(done[i].whole_ms);
  EXPECT_LE(percentile(whole, 0.99), 1.1 * percentile(whole, 0.5));
  EXPECT_GE(percentile(whole, 0.01), 0.85 * percentile(whole, 0.5));
}

// All requests of a burst arrive before the first answer ends, and requests that follow those must not hold them up.
// Nor may some be taken for long ones.
TEST(Fairness, TheLastOfABurstEndsLittleLaterThanTheOthers) {
  for (const int clients : {32, 256}) {
    ClosedLoop load{.clients = clients};
    for (int32_t length = 950; length <= 1060; ++length) load.lengths.push_back(length);
    const auto done = Simulation(load).run(static_cast<size_t>(clients) * 4);
    std::vector<double> whole;
    for (const auto& request : done) whole.push_back(request.whole_ms);
    EXPECT_LE(percentile(whole, 0.99), 1.12 * percentile(whole, 0.5)) << clients << " clients";
  }
}

TEST(Fairness, ShortPromptsPassLongOnesAndLongOnesFinish) {
  ClosedLoop load{.clients = 16, .answer = 16};
  for (int i = 0; i < 12; ++i) load.lengths.push_back(60 + i);
  load.lengths.push_back(5000);
  const auto done = Simulation(load).run(400);
  std::vector<double> brief, lengthy;
  for (const auto& request : done) (request.prompt < 100 ? brief : lengthy).push_back(request.first_ms);
  ASSERT_GT(lengthy.size(), 10u);
  EXPECT_LE(percentile(brief, 0.9), 150) << "about three steps with chunks";
  EXPECT_LE(percentile(lengthy, 1), 8000) << "several long ones share the other half";
}

}  // namespace
}  // namespace millrace
