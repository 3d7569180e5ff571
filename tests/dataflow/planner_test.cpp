#include "dataflow/planner.h"

#include <gmock/gmock.h>

#include "base/thread_pool.h"
#include "dataflow/buckets.h"
#include "dataflow/layout.h"
#include "dataflow/roofline.h"

namespace millrace {
namespace {

// A kernel with an artificial cost and layout.
class FakeKernel : public LinearKernel {
 public:
  FakeKernel(std::string_view name, std::string_view layout, double fixed_us, double per_row_us, int64_t max_m)
      : name_(name), layout_(layout), fixed_us_(fixed_us), per_row_us_(per_row_us), max_m_(max_m) {}
  std::string_view name() const override { return name_; }
  bool can_run(const Problem& p, const Hardware&) const override { return p.layout == layout_ && p.m <= max_m_; }
  double estimate_us(const Problem& p, const Hardware&) const override { return fixed_us_ + per_row_us_ * double(p.m); }
  void run(const Args&, const Executor&) const override {}

 private:
  std::string_view name_, layout_;
  double fixed_us_, per_row_us_;
  int64_t max_m_;
};

class FakeLayout : public LinearLayout {
 public:
  explicit FakeLayout(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  bool accepts(DType, int64_t, int64_t, const Hardware&) const override { return true; }
  size_t bytes(DType, int64_t, int64_t) const override { return 64; }
  void pack(std::span<const WeightView>, std::byte*, ThreadPool&) const override {}

 private:
  std::string_view name_;
};

const FakeKernel kGemv("gemv", "a", 10, 10, 1 << 20), kFull("full", "a", 100, 1, 1 << 20),
    kOnly1("only1", "a", 1, 1, 1);
const FakeKernel kOther("other", "b", 50, 50, 1 << 20);
const KernelList<LinearOp> kAll{&kGemv, &kFull, &kOnly1, &kOther};

LinearProblem problem(int64_t m, std::string_view layout = "a") {
  return {DType::Q8_0, layout, Precision::Fast, 64, 64, m};
}

TEST(Planner, ChoosesTheFeasibleKernelWithTheBestEstimate) {
  const Hardware hardware;
  Planner<LinearOp> planner(kAll, hardware, nullptr, "");
  EXPECT_EQ(planner.plan(problem(1)), &kOnly1);
  EXPECT_EQ(planner.plan(problem(2)), &kGemv);
  EXPECT_EQ(planner.plan(problem(64)), &kFull);
  EXPECT_EQ(planner.plan(problem(64, "c")), nullptr);
  EXPECT_EQ(planner.rank(problem(1)).size(), 3u);
}

TEST(Planner, MeasurementsBeatEstimates) {
  const Hardware hardware;
  PlanCache plans;
  plans.put("linear", to_string(problem(64)), {{"full", 300}, {"gemv", 200}});
  Planner<LinearOp> planner(kAll, hardware, &plans, "");
  EXPECT_EQ(planner.plan(problem(64)), &kGemv);
  EXPECT_EQ(planner.plan(problem(32)), &kFull) << "another problem has no measurement";
}

// The variant has the better estimate, but estimates do not rank variants.
TEST(Planner, VariantsCountOnlyWhereTheyWereMeasured) {
  class Variant : public FakeKernel {
   public:
    using FakeKernel::FakeKernel;
    const LinearKernel* variant_of(const Problem&, const Hardware&) const override { return &kFull; }
  };
  const Variant variant("full_1", "a", 1, 0, 1 << 20);
  const KernelList<LinearOp> all{&kGemv, &kFull, &variant};
  const Hardware hardware;
  PlanCache plans;
  plans.put("linear", to_string(problem(64)), {{"full", 300}, {"full_1", 200}});
  Planner<LinearOp> measured(all, hardware, &plans, ""), estimated(all, hardware, nullptr, ""),
      forced(all, hardware, nullptr, "full_1");
  EXPECT_EQ(measured.plan(problem(64)), &variant);
  EXPECT_EQ(measured.plan(problem(32)), &kFull);
  EXPECT_EQ(estimated.plan(problem(64)), &kFull);
  EXPECT_EQ(estimated.rank(problem(64)).size(), 2u);
  EXPECT_EQ(forced.plan(problem(64)), &variant);
}

// Alone the kernel is faster, but not by enough to outweigh its burden on other kernels.
TEST(Planner, ABurdenCountsWithWhatWasMeasured) {
  class Burden : public FakeKernel {
   public:
    using FakeKernel::FakeKernel;
    double burden(const Problem&) const override { return 1.1; }
  };
  const Burden library("library", "a", 1, 0, 1 << 20);
  const KernelList<LinearOp> all{&kGemv, &library};
  const Hardware hardware;
  PlanCache plans;
  plans.put("linear", to_string(problem(32)), {{"library", 100}, {"gemv", 105}});
  plans.put("linear", to_string(problem(64)), {{"library", 100}, {"gemv", 115}});
  Planner<LinearOp> planner(all, hardware, &plans, "");
  EXPECT_EQ(planner.plan(problem(32)), &kGemv);
  EXPECT_EQ(planner.rank(problem(32)).back().measured_us, 100) << "what is shown is what was measured";
  EXPECT_EQ(planner.plan(problem(64)), &library);
}

TEST(Planner, AForcedKernelWinsWhereItCanRun) {
  const Hardware hardware;
  Planner<LinearOp> planner(kAll, hardware, nullptr, "only1");
  EXPECT_EQ(planner.plan(problem(1)), &kOnly1);
  EXPECT_EQ(planner.plan(problem(64)), &kFull);
  EXPECT_THROW(Planner<LinearOp>(kAll, hardware, nullptr, "no_such"), Error);
}

TEST(Layout, TheCheapestMixWinsAndAForcedKernelBringsItsLayout) {
  const Hardware hardware;
  const FakeLayout a("a"), b("b");
  KernelSet set;
  set.layouts = {&b, &a};
  set.of<LinearOp>() = kAll;
  const Planner<LinearOp> free(set.of<LinearOp>(), hardware, nullptr, ""),
      forced(set.of<LinearOp>(), hardware, nullptr, "other");
  EXPECT_EQ(choose_layout(DType::Q8_0, 64, 64, Precision::Fast, set, free).name(), "a");
  EXPECT_EQ(choose_layout(DType::Q8_0, 64, 64, Precision::Fast, set, forced).name(), "b");
}

TEST(Layout, MeasurementsAreNotHeldAgainstEstimates) {
  const Hardware hardware;
  const FakeLayout a("a"), b("b");
  KernelSet set;
  set.layouts = {&b, &a};
  set.of<LinearOp>() = kAll;
  PlanCache plans;
  const Planner<LinearOp> planner(set.of<LinearOp>(), hardware, &plans, "");
  for (const int64_t m : {1, 8, 512}) plans.put("linear", to_string(problem(m, "a")), {{"gemv", 1e6}});
  EXPECT_EQ(choose_layout(DType::Q8_0, 64, 64, Precision::Fast, set, planner).name(), "a");
  for (const int64_t m : {1, 8, 512}) plans.put("linear", to_string(problem(m, "b")), {{"other", 1e5}});
  EXPECT_EQ(choose_layout(DType::Q8_0, 64, 64, Precision::Fast, set, planner).name(), "b");
}

TEST(Buckets, CoverEverySizeUpToTheLargest) {
  for (const int64_t most : {1, 7, 100, 512, 1000}) {
    const auto buckets = row_buckets(most);
    for (int64_t m = 1; m <= most; ++m) {
      EXPECT_GE(bucket_rows(m), m);
      EXPECT_THAT(buckets, testing::Contains(bucket_rows(m)));
    }
    EXPECT_LE(buckets.size(), 40u);
  }
}

TEST(Roofline, GrowsWithTheWork) {
  const Hardware hardware;
  EXPECT_GT(roof_us(problem(64), hardware), roof_us(problem(1), hardware));
  // One row reads its own experts; many rows read all of them, but each only once.
  GroupedLinearProblem experts{.format = DType::F16, .groups = 64, .n = 512, .k = 512, .rows = 1, .per_row = 4};
  const double one = work_of(experts).bytes, matrix = 512.0 * 512 * 2;
  EXPECT_NEAR(one / matrix, 4, 0.1);
  experts.rows = 16;
  EXPECT_GT(work_of(experts).bytes, 10 * one);
  EXPECT_LT(work_of(experts).bytes, 14 * one);
  experts.rows = 1000;
  EXPECT_LT(work_of(experts).bytes, 90 * matrix);
  AttentionProblem attention{.heads = 8,
                             .kv_heads = 2,
                             .key_dim = 64,
                             .value_dim = 64,
                             .block_size = 16,
                             .sequences = 1,
                             .rows = 1,
                             .context = 1000};
  const double near = roof_us(attention, hardware);
  attention.context = 4000;
  EXPECT_GT(roof_us(attention, hardware), 2 * near);
  attention.window = 100;
  EXPECT_LT(roof_us(attention, hardware), near);
}

// Every sequence reads and writes its own state, whatever its rows.
TEST(Roofline, OfRecurrentOpsCountsTheStates) {
  const DeltaRuleShape delta{.key_heads = 2, .value_heads = 4, .key_dim = 64, .value_dim = 64};
  const SsmShape scan{.heads = 4, .head_dim = 64, .groups = 1, .state = 64};
  const std::vector<SequenceSlice> slices(8);
  const auto matrix = [](int64_t rows, int64_t cols) { return Matrix{DType::F32, rows, cols, cols, nullptr}; };
  const auto delta_args = [&](int64_t rows, size_t sequences) {
    return DeltaRuleOp::Args{.shape = delta,
                             .q = matrix(rows, delta.key_width()),
                             .k = matrix(rows, delta.key_width()),
                             .v = matrix(rows, delta.value_width()),
                             .a = matrix(rows, 4),
                             .b = matrix(rows, 4),
                             .out = matrix(rows, delta.value_width()),
                             .sequences = std::span(slices).first(sequences)};
  };
  const auto scan_args = [&](int64_t rows, size_t sequences) {
    return SsmScanOp::Args{.shape = scan,
                           .x = matrix(rows, scan.inner()),
                           .b = matrix(rows, 64),
                           .c = matrix(rows, 64),
                           .dt = matrix(rows, 4),
                           .out = matrix(rows, scan.inner()),
                           .sequences = std::span(slices).first(sequences)};
  };
  const auto conv_args = [&](int64_t rows, size_t sequences) {
    return CausalConvOp::Args{
        .x = matrix(rows, 64), .out = matrix(rows, 64), .taps = 4, .sequences = std::span(slices).first(sequences)};
  };
  const double state = 8.0 * 4 * 64 * 64;
  EXPECT_EQ(work_of(delta_args(8, 8)).bytes - work_of(delta_args(8, 1)).bytes, 7 * state);
  EXPECT_EQ(work_of(scan_args(8, 8)).bytes - work_of(scan_args(8, 1)).bytes, 7 * state);
  EXPECT_EQ(work_of(conv_args(8, 8)).bytes - work_of(conv_args(8, 1)).bytes, 7 * 8 * 3 * 64);
  EXPECT_EQ(work_of(conv_args(8, 0)).bytes, 2 * 8 * 64 * 4);
  EXPECT_EQ(work_of(delta_args(8, 1)).operations, 8 * work_of(delta_args(1, 1)).operations);
  EXPECT_GT(work_of(delta_args(1, 1)).operations, work_of(scan_args(1, 1)).operations);
}

}  // namespace
}  // namespace millrace
