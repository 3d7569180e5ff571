// Every kernel of the grouped linear layer, at every ISA level, against the reference.
#include <gtest/gtest.h>

#include <map>

#include "base/thread_pool.h"
#include "experts.h"

namespace millrace {
namespace {

struct GroupedLinearCase {
  int64_t rows, groups, per_row, n;
  Spread spread;
  bool gated, sum, bias;
  Activation activation = Activation::Silu;
};

constexpr GroupedLinearCase kGroupedCases[] = {
    {1, 6, 3, 48, Spread::Even, true, false, false},                       // decode
    {1, 6, 6, 41, Spread::Even, false, true, true},                        // one row, all experts
    {3, 6, 2, 48, Spread::Even, true, false, true, Activation::GeluTanh},  // experts with zero to three rows
    {5, 6, 2, 44, Spread::Even, true, false, false, Activation::GeluErf},  // rows of gate and up share a strip
    {9, 6, 2, 41, Spread::OneExpert, false, true, false},
    {9, 6, 2, 48, Spread::FewExperts, true, false, true, Activation::ClampedSwiglu},
    {40, 6, 3, 48, Spread::Even, true, false, true},
    {40, 6, 3, 41, Spread::FewExperts, false, true, true},
    {33, 6, 1, 48, Spread::OneExpert, true, false, false, Activation::Relu},  // all rows choose one expert
    {33, 6, 6, 41, Spread::Even, false, false, true},                         // each row chooses all experts
};

// Memory of an exact size between guards, aligned as arenas are.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : bytes_(bytes), storage_(bytes + 3 * kGuard, std::byte{0xff}) {
    data_ = storage_.data() + 2 * kGuard - reinterpret_cast<uintptr_t>(storage_.data()) % kGuard;
  }
  std::byte* data() { return data_; }
  bool guards_are_untouched() const {
    const auto is_guard = [](std::byte byte) { return byte == std::byte{0xff}; };
    return std::all_of(storage_.data(), static_cast<const std::byte*>(data_), is_guard) &&
           std::all_of(data_ + bytes_, data_ + bytes_ + kGuard, is_guard);
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t bytes_;
  std::vector<std::byte> storage_;
  std::byte* data_;
};

double grouped_tolerance(const GroupedLinearProblem& p, std::string_view kernel) {
  if (p.precision == Precision::Exact || p.format == DType::F32) return 1e-5;
  if (kernel.find("plain") != kernel.npos || kernel.find("exact") != kernel.npos) return 1e-5;
  if (p.layout == "rows") return is_quantized(p.format) ? 1e-5 : 2e-2;  // bf16 products
  return p.gated ? 8e-2 : 5e-2;  // x, and in prompt kernels also the weights, are rounded to int8
}

// Inputs and expected results of one case.
class GroupedFixture {
 public:
  GroupedFixture(const GroupedLinearCase& c, DType format, TestExperts& experts, int64_t k, Random& random)
      : case_(c),
        format_(format),
        k_(k),
        experts_(experts),
        routing_(c.rows, c.groups, c.per_row, c.spread, random),
        x_(c.sum ? c.rows * c.per_row : c.rows, k, random),
        before_(c.sum ? c.rows : c.rows * c.per_row, c.gated ? c.n / 2 : c.n, random),
        expected_(before_) {
    for (int64_t i = 0; i < c.groups * c.n; ++i) bias_.push_back(random.normal(10));
    weights_ = experts_.file_rows();
    GroupedLinearOp::reference()->run(args(expected_), {&pools_[1]});
  }

  GroupedLinearProblem problem(Precision precision, bool invariant) const {
    const GroupedLinearCase& c = case_;
    return {format_,
            weights_.layout->name(),
            precision,
            c.groups,
            c.n,
            k_,
            bucket_rows(c.rows),
            c.per_row,
            DType::F32,
            c.gated,
            c.sum,
            invariant};
  }

  void use(const LinearLayout& layout) { weights_ = experts_.packed(layout, pools_[1]); }

  TestMatrix run(const Kernel<GroupedLinearOp>& kernel, const GroupedLinearProblem& p, Hardware hardware, int threads) {
    hardware.threads = threads;
    GuardedBuffer workspace(kernel.workspace_bytes(p, hardware));
    TestMatrix y = case_.sum ? before_ : TestMatrix(before_.view().rows, before_.view().cols);
    GroupedLinearArgs call = args(y);
    call.invariant = p.invariant;
    kernel.run(call, {&pools_[threads - 1], workspace.data(), nullptr, &hardware});
    EXPECT_TRUE(workspace.guards_are_untouched());
    EXPECT_TRUE(y.spare_is_untouched());
    return y;
  }

  // The groups below `first`, then the others.
  TestMatrix run_parts(const Kernel<GroupedLinearOp>& kernel, GroupedLinearProblem p, Hardware hardware,
                       int64_t first) {
    hardware.threads = 2;
    TestMatrix y = case_.sum ? before_ : TestMatrix(before_.view().rows, before_.view().cols);
    p.all_groups = p.groups;
    for (const auto& [begin, count] : {std::pair(int64_t{0}, first), std::pair(first, case_.groups - first)}) {
      p.groups = count;
      GroupedWeights some = weights_;
      some.groups = count;
      some.data = weights_.data.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
      GroupedLinearArgs call = args(y);
      call.weights = &some;
      call.routing = call.routing.part(begin, count);
      if (call.bias != nullptr) call.bias += begin * case_.n;
      GuardedBuffer workspace(kernel.workspace_bytes(p, hardware));
      kernel.run(call, {&pools_[1], workspace.data(), nullptr, &hardware});
      EXPECT_TRUE(workspace.guards_are_untouched());
    }
    EXPECT_TRUE(y.spare_is_untouched());
    return y;
  }

  // A single row of the batch, as a batch of its own.
  TestMatrix run_row(const Kernel<GroupedLinearOp>& kernel, GroupedLinearProblem p, Hardware hardware, int64_t row) {
    hardware.threads = 1;
    p.rows = 1;
    const int64_t pairs = case_.per_row;
    const Routing all = routing_.view();
    TestRouting one(1, case_.groups, pairs);
    std::copy_n(all.chosen + row * pairs, pairs, one.view().chosen);
    std::copy_n(all.weights + row * pairs, pairs, one.view().weights);
    sort_by_group(one.view());
    TestMatrix y = before_;
    GroupedLinearArgs call = args(y);
    call.invariant = p.invariant;
    call.routing = one.view();
    call.x = case_.sum ? call.x.rows_from(row * pairs, pairs) : call.x.rows_from(row, 1);
    call.y = case_.sum ? call.y.rows_from(row, 1) : call.y.rows_from(row * pairs, pairs);
    GuardedBuffer workspace(kernel.workspace_bytes(p, hardware));
    kernel.run(call, {&pools_[0], workspace.data(), nullptr, &hardware});
    return y;
  }

  // Rounding errors of a single row vary. A row of another expert is at a distance of about 1.4.
  void expect_close(TestMatrix& y, double tolerance) {
    ASSERT_LE(y.distance(expected_), tolerance);
    for (int64_t row = 0; row < y.view().rows; ++row) ASSERT_LE(y.distance(expected_, row, 1), 4 * tolerance) << row;
  }
  int64_t rows_of_y_per_row() const { return case_.sum ? 1 : case_.per_row; }

 private:
  GroupedLinearArgs args(TestMatrix& y) {
    return {.x = x_.view(),
            .weights = &weights_,
            .bias = case_.bias ? bias_.data() : nullptr,
            .routing = routing_.view(),
            .gated = case_.gated,
            .activation = case_.activation,
            .clamp = {12, 1.5f},
            .sum = case_.sum,
            .y = y.view()};
  }

  GroupedLinearCase case_;
  DType format_;
  int64_t k_;
  TestExperts& experts_;
  GroupedWeights weights_;
  TestRouting routing_;
  TestMatrix x_, before_, expected_;
  std::vector<float> bias_;
  ThreadPool pools_[3] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
};

class GroupedLinearTest : public testing::TestWithParam<DType> {
 protected:
  // Experts of n rows, the same for all cases.
  TestExperts& experts(int64_t n, int64_t groups) {
    return experts_.try_emplace(n, GetParam(), groups, n, kColumns, random_).first->second;
  }

  static constexpr int64_t kColumns = 512;
  Random random_;
  std::map<int64_t, TestExperts> experts_;
};

TEST_P(GroupedLinearTest, EveryKernelMatchesTheReference) {
  SCOPED_TRACE("MILLRACE_TEST_SEED=" + std::to_string(random_.seed()));
  std::map<std::string_view, int> checked;
  for (const GroupedLinearCase& c : kGroupedCases) {
    GroupedFixture f(c, GetParam(), experts(c.n, c.groups), kColumns, random_);
    for (const auto* layout : LinearOp::cpu_layouts()) {
      if (!layout->accepts(GetParam(), c.n, kColumns, test_hardware())) continue;
      f.use(*layout);
      for (const Hardware& hardware : hardware_levels()) {
        for (const auto* kernel : GroupedLinearOp::cpu()) {
          for (const auto precision : {Precision::Fast, Precision::Exact}) {
            const GroupedLinearProblem p = f.problem(precision, false);
            if (kernel == GroupedLinearOp::reference() || !kernel->can_run(p, hardware)) continue;
            SCOPED_TRACE(to_string(p) + " with " + std::string(kernel->name()));
            EXPECT_GT(kernel->estimate_us(p, hardware), 0);
            TestMatrix y = f.run(*kernel, p, hardware, 1 + random_.below(3));
            f.expect_close(y, grouped_tolerance(p, kernel->name()));
            EXPECT_TRUE(y.same_bits(f.run(*kernel, p, hardware, 1 + random_.below(3)))) << "other threads, other bits";
            if (HasFailure()) return;
            ++checked[kernel->name()];
          }
        }
      }
    }
  }
  EXPECT_GT(checked["experts"], 0);
  EXPECT_GT(checked["experts_exact"], 0);
}

TEST_P(GroupedLinearTest, InvariantRowsDoNotDependOnTheBatch) {
  SCOPED_TRACE("MILLRACE_TEST_SEED=" + std::to_string(random_.seed()));
  for (const GroupedLinearCase& c : kGroupedCases) {
    GroupedFixture f(c, GetParam(), experts(c.n, c.groups), kColumns, random_);
    for (const auto* layout : LinearOp::cpu_layouts()) {
      if (!layout->accepts(GetParam(), c.n, kColumns, test_hardware())) continue;
      f.use(*layout);
      for (const auto* kernel : GroupedLinearOp::cpu()) {
        const GroupedLinearProblem p = f.problem(Precision::Fast, true);
        if (!kernel->can_run(p, test_hardware())) continue;
        SCOPED_TRACE(to_string(p) + " with " + std::string(kernel->name()));
        TestMatrix all = f.run(*kernel, p, test_hardware(), 2);
        const int64_t row = random_.below(static_cast<int>(c.rows)), each = f.rows_of_y_per_row();
        TestMatrix alone = f.run_row(*kernel, p, test_hardware(), row);
        EXPECT_EQ(all.distance(alone, row * each, each), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GroupedLinearTest, testing::ValuesIn([] {
                           std::vector<DType> all;
                           for (const auto& type : all_dtypes()) all.push_back(type.dtype);
                           return all;
                         }()),
                         [](const auto& info) { return std::string(name(info.param)); });

// Two devices that hold some of the matrices each: together they write what one device writes.
TEST_P(GroupedLinearTest, PartsOfTheGroupsAddUp) {
  SCOPED_TRACE("MILLRACE_TEST_SEED=" + std::to_string(random_.seed()));
  for (const GroupedLinearCase& c : kGroupedCases) {
    GroupedFixture f(c, GetParam(), experts(c.n, c.groups), kColumns, random_);
    for (const auto* layout : LinearOp::cpu_layouts()) {
      if (!layout->accepts(GetParam(), c.n, kColumns, test_hardware())) continue;
      f.use(*layout);
      for (const auto* kernel : GroupedLinearOp::cpu()) {
        const GroupedLinearProblem p = f.problem(Precision::Fast, false);
        if (!kernel->can_run(p, test_hardware())) continue;
        SCOPED_TRACE(to_string(p) + " with " + std::string(kernel->name()));
        TestMatrix y = f.run_parts(*kernel, p, test_hardware(), 1 + random_.below(static_cast<int>(c.groups) - 1));
        f.expect_close(y, grouped_tolerance(p, kernel->name()));
      }
    }
  }
}

// More rows of one expert than a piece has, and fewer panels than workers.
TEST(GroupedLinear, GateAndUpMayLieApart) {
  for (const DType format : {DType::F16, DType::Q4_K, DType::MXFP4}) {
    Random random;
    SCOPED_TRACE("MILLRACE_TEST_SEED=" + std::to_string(random.seed()));
    const int64_t rows = 5, groups = 4, per_row = 2, n = 48, k = 256;
    const TestExperts experts(format, groups, n, k, random);
    TestRouting routed(rows, groups, per_row, Spread::Even, random);
    TestMatrix x(rows, k, random);
    const GroupedWeights together = experts.file_rows();
    std::vector<std::vector<std::byte>> copies;
    std::vector<const std::byte*> both, ups;
    for (int64_t g = 0; g < groups; ++g) {
      const WeightView view = experts.file_view(g);
      both.push_back(copies.emplace_back(view.data, view.row(n / 2)).data());
      ups.push_back(copies.emplace_back(view.row(n / 2), view.row(n)).data());
    }
    GroupedWeights apart = together;
    both.insert(both.end(), ups.begin(), ups.end());
    apart.data = both;
    apart.stride = 0;
    ThreadPool pool(2);
    Hardware hardware = test_hardware();
    hardware.threads = 2;
    int kernels = 0;
    for (const auto* kernel : GroupedLinearOp::cpu()) {
      for (const Precision precision : {Precision::Fast, Precision::Exact}) {
        for (const bool gated : {true, false}) {  // rows with adapters need gate and up themselves
          const GroupedLinearProblem problem{
              format, together.layout->name(), precision, groups, n, k, rows, per_row, DType::F32, gated};
          if (!kernel->can_run(problem, hardware)) continue;
          ++kernels;
          const auto run = [&](const GroupedWeights& weights) {
            GuardedBuffer workspace(kernel->workspace_bytes(problem, hardware));
            TestMatrix y(rows * per_row, gated ? n / 2 : n);
            kernel->run({.x = x.view(), .weights = &weights, .routing = routed.view(), .gated = gated, .y = y.view()},
                        {&pool, workspace.data(), nullptr, &hardware});
            return y;
          };
          TestMatrix expected = run(together), y = run(apart);
          EXPECT_LE(y.distance(expected), gated ? 0 : 1e-6) << kernel->name();
        }
      }
    }
    EXPECT_GE(kernels, 6);
  }
}

TEST(GroupedLinear, ManyRowsOfOneExpert) {
  for (const DType format : {DType::F32, DType::F16, DType::Q4_0}) {
    Random random;
    SCOPED_TRACE("MILLRACE_TEST_SEED=" + std::to_string(random.seed()));
    const GroupedLinearCase c{1100, 3, 1, 16, Spread::OneExpert, false, false, true};
    TestExperts experts(format, c.groups, c.n, 64, random);
    GroupedFixture f(c, format, experts, 64, random);
    for (const auto* layout : LinearOp::cpu_layouts()) {
      if (!layout->accepts(format, c.n, 64, test_hardware())) continue;
      f.use(*layout);
      const GroupedLinearProblem p = f.problem(Precision::Fast, false);
      for (const auto* kernel : GroupedLinearOp::cpu()) {
        if (kernel == GroupedLinearOp::reference() || !kernel->can_run(p, test_hardware())) continue;
        SCOPED_TRACE(to_string(p) + " with " + std::string(kernel->name()));
        TestMatrix y = f.run(*kernel, p, test_hardware(), 3);
        f.expect_close(y, grouped_tolerance(p, kernel->name()));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
