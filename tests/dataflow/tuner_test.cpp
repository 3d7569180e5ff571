#include "dataflow/tuner.h"

#include <gmock/gmock.h>

#include <chrono>
#include <set>

#include "base/thread_pool.h"
#include "hardware/detect.h"

namespace millrace {
namespace {

// A kernel with a given run time; its estimate may differ.
class TimedKernel : public LinearKernel {
 public:
  TimedKernel(std::string_view name, double estimate_us, double takes_us)
      : name_(name), estimate_us_(estimate_us), takes_us_(takes_us) {}
  std::string_view name() const override { return name_; }
  bool can_run(const Problem&, const Hardware&) const override { return true; }
  double estimate_us(const Problem& p, const Hardware&) const override { return estimate_us_ * double(p.m); }
  void run(const Args& args, const Executor&) const override {
    seen.insert(args.weights->data);
    ++runs;
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::duration<double, std::micro>(takes_us_)) {
    }
  }
  mutable std::set<const std::byte*> seen;
  mutable int runs = 0;

 private:
  std::string_view name_;
  double estimate_us_, takes_us_;
};

const LinearLayout& rows_of_files() { return *cpu_kernels().layouts.back(); }

LinearProblem timed_problem(int64_t m) { return {DType::F16, rows_of_files().name(), Precision::Fast, 64, 256, m}; }

TEST(Tuner, PrefersWhatIsFasterToWhatWasThoughtFaster) {
  const TimedKernel promises("promises", 10, 400), delivers("delivers", 20, 100), far("far", 900, 1);
  KernelSet kernels;
  kernels.layouts = cpu_kernels().layouts;
  kernels.of<LinearOp>() = {&promises, &delivers, &far};
  const auto device = host_device(detect_cpu(1));
  const Hardware& hardware = device->hardware();
  ThreadPool pool(1);
  PlanCache plans;
  Planner<LinearOp> before(kernels.of<LinearOp>(), hardware, nullptr, ""),
      after(kernels.of<LinearOp>(), hardware, &plans, "");
  EXPECT_EQ(before.plan(timed_problem(1)), &promises);
  Tuner(kernels, *device, pool, plans).tune({timed_problem(1)});
  EXPECT_EQ(after.plan(timed_problem(1)), &delivers);
  EXPECT_GE(after.rank(timed_problem(1)).front().measured_us, 100);
  EXPECT_EQ(far.runs, 0) << "far behind by its estimate";
  EXPECT_LT(promises.runs, delivers.runs) << "far behind by the clock";
}

TEST(Tuner, SmallModelsAreTimedInTheCache) {
  Hardware hardware;
  hardware.l3_bytes = 100 << 20;
  const size_t mib = 1 << 20, cold = cold_bytes(hardware);
  EXPECT_GT(cold, 200 * mib);
  EXPECT_EQ(copies_to_read(mib, 1000 * mib, hardware), cold / mib) << "a large model is cold";
  EXPECT_EQ(copies_to_read(mib, 80 * mib, hardware), 80u) << "copies as large as the model";
  EXPECT_EQ(copies_to_read(3 * mib, 80 * mib, hardware), 27u);
  EXPECT_EQ(copies_to_read(90 * mib, 80 * mib, hardware), 1u);
}

TEST(Tuner, TimesGroupedLinearLayersOnDifferentRoutings) {
  class Kept final : public Kernel<GroupedLinearOp> {
   public:
    std::string_view name() const override { return "kept"; }
    bool can_run(const Problem&, const Hardware&) const override { return true; }
    double estimate_us(const Problem&, const Hardware&) const override { return 1; }
    void run(const Args& args, const Executor&) const override {
      const Routing& r = args.routing;
      seen.emplace(r.chosen, r.chosen + r.pairs());
      EXPECT_EQ(r.offsets[r.groups], r.pairs());
      EXPECT_EQ(args.weights->data.size(), 12u);
    }
    mutable std::set<std::vector<int32_t>> seen;
  };
  const Kept kept;
  KernelSet kernels;
  kernels.layouts = cpu_kernels().layouts;
  kernels.of<GroupedLinearOp>() = {&kept};
  const auto device = host_device(detect_cpu(1));
  ThreadPool pool(1);
  PlanCache plans;
  const GroupedLinearProblem problem{.format = DType::F16,
                                     .layout = rows_of_files().name(),
                                     .groups = 12,
                                     .n = 64,
                                     .k = 256,
                                     .rows = 3,
                                     .per_row = 4,
                                     .gated = true};
  Tuner(kernels, *device, pool, plans).tune(std::vector{problem});
  EXPECT_GT(kept.seen.size(), 1u);
  EXPECT_NE(plans.find(GroupedLinearOp::kName, to_string(problem)), nullptr);
}

TEST(RandomRoutings, PreferTheFirstGroupsIfSkewed) {
  const GroupedLinearProblem problem{.groups = 12, .rows = 400, .per_row = 3};
  const auto device = host_device(detect_cpu(1));
  for (const double skew : {0.0, 1.5}) {
    RandomRoutings routings(problem, *device, skew);
    const Routing r = routings.next();
    for (int64_t row = 0; row < r.rows; ++row) {
      const std::set<int32_t> of_row(r.chosen + 3 * row, r.chosen + 3 * row + 3);
      EXPECT_EQ(of_row.size(), 3u);
      EXPECT_LT(*of_row.rbegin(), 12);
    }
    const auto count = [&](int64_t group) { return r.offsets[group + 1] - r.offsets[group]; };
    EXPECT_EQ(count(0) > 4 * count(11), skew > 0) << count(0) << " " << count(11);
  }
}

// Attention with a given run time, optionally a variant of another kernel.
class TimedAttention : public AttentionKernel {
 public:
  TimedAttention(std::string_view name, double takes_us, const AttentionKernel* base = nullptr)
      : name_(name), takes_us_(takes_us), base_(base) {}
  std::string_view name() const override { return name_; }
  const AttentionKernel* variant_of(const Problem&, const Hardware&) const override { return base_; }
  bool can_run(const Problem&, const Hardware&) const override { return ++asked > 0; }
  double estimate_us(const Problem&, const Hardware&) const override { return takes_us_; }
  void run(const Args&, const Executor&) const override {
    ++runs;
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::duration<double, std::micro>(takes_us_)) {
    }
  }
  mutable int runs = 0, asked = 0;

 private:
  std::string_view name_;
  double takes_us_;
  const AttentionKernel* base_;
};

TEST(Tuner, TriesVariantsOfTheAttentionThatDidBest) {
  const TimedAttention slow("slow", 300), fast("fast", 200);
  const TimedAttention of_slow("of_slow", 1, &slow), of_fast("of_fast", 100, &fast);
  KernelSet kernels;
  kernels.of<AttentionOp>() = {&slow, &fast, &of_slow, &of_fast};
  const auto device = host_device(detect_cpu(1));
  ThreadPool pool(1);
  PlanCache plans;
  Planner<AttentionOp> after(kernels.of<AttentionOp>(), device->hardware(), &plans, "");
  const AttentionProblem p{.kv = DType::F16,
                           .heads = 4,
                           .kv_heads = 2,
                           .key_dim = 64,
                           .value_dim = 64,
                           .block_size = 16,
                           .sequences = 1,
                           .rows = 64,
                           .context = 128};
  EXPECT_EQ(after.rank(p).front().kernel, &fast);
  EXPECT_EQ(of_fast.asked + of_slow.asked, 0) << "asking may mean loading a library";
  Tuner(kernels, *device, pool, plans).tune(p);
  EXPECT_EQ(after.plan(p), &of_fast);
  EXPECT_EQ(of_slow.runs, 0);
}

TEST(Tuner, TimesWithWeightsThatTheCachesHaveForgotten) {
  const TimedKernel kernel("kernel", 1, 1);
  const LinearKernel* only[] = {&kernel};
  Hardware hardware = detect_cpu(1);
  hardware.l3_bytes = 1 << 20;
  const auto device = host_device(hardware);
  ThreadPool pool(1);
  ColdWeights weights(DType::F16, 4096, 4096, rows_of_files(), *device, pool);
  LinearProblem large = timed_problem(1);
  large.n = large.k = 4096;
  KernelTimer(*device, pool).time(large, only, weights);
  EXPECT_GE(kernel.seen.size() * weights.bytes(), cold_bytes(hardware));
}

TEST(ColdKeys, EverySequenceHasPagesOfItsOwn) {
  const AttentionProblem p{.kv = DType::F16,
                           .heads = 4,
                           .kv_heads = 2,
                           .key_dim = 64,
                           .value_dim = 64,
                           .block_size = 16,
                           .sequences = 3,
                           .rows = 6,
                           .context = 100};
  const auto device = host_device(detect_cpu(1));
  ColdKeys keys(p, *device);
  for (int turn = 0; turn < 5; ++turn) {
    std::set<int32_t> pages;
    for (const auto& slice : keys.next().slices) {
      EXPECT_EQ(slice.rows, 2);
      EXPECT_EQ(slice.past + slice.rows, 100);
      pages.insert(slice.pages.begin(), slice.pages.end());
    }
    EXPECT_EQ(pages.size(), 3u * 7);
  }
}

TEST(Planner, ExpectsOfASizeWhatItsBucketTook) {
  const TimedKernel kernel("kernel", 10, 1);
  const KernelList<LinearOp> all{&kernel};
  const Hardware hardware;
  PlanCache plans;
  const Planner<LinearOp> planner(all, hardware, &plans, "");
  EXPECT_DOUBLE_EQ(planner.expected_us(kernel, timed_problem(10)), 100);
  plans.put(LinearOp::kName, to_string(timed_problem(12)), {{"kernel", 240}});  // twice the estimate
  EXPECT_DOUBLE_EQ(planner.expected_us(kernel, timed_problem(10)), 200);
}

}  // namespace
}  // namespace millrace
