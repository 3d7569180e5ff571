// The grouped linear layer on the GPU against its scalar reference: every kernel in every layout and format, skewed
// routings, and recorded steps that replay with another routing.
#include "kernels/experts.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "cuda/gpu_routing.h"
#include "kernels/kernel_set.h"

namespace millrace {
namespace {

struct GroupedCase {
  DType format, x;
  int64_t rows, groups, per_row, n, k;
  Spread spread;
  bool gated, sum, bias;
  Activation activation = Activation::Silu;
  Precision precision = Precision::Fast;

  GroupedLinearProblem problem(const LinearLayout& layout) const {
    return {.format = format,
            .layout = layout.name(),
            .precision = precision,
            .groups = groups,
            .n = n,
            .k = k,
            .rows = rows,
            .per_row = per_row,
            .x = x,
            .gated = gated,
            .sum = sum,
            .by_head = spread == Spread::ByHead};
  }
  GroupedLinearArgs args(Matrix input, const GroupedWeights* weights, const float* biases, const Routing& routing,
                         Matrix y) const {
    return {.x = input,
            .weights = weights,
            .bias = biases,
            .routing = routing,
            .gated = gated,
            .activation = activation,
            .clamp = {12, 1.5f},
            .sum = sum,
            .y = y};
  }
};

// Experts in GPU memory, in a layout.
class GpuExperts {
 public:
  GpuExperts(const TestExperts& experts, const GroupedCase& c, const LinearLayout& layout, ThreadPool& pool)
      : stride_((layout.bytes(c.format, c.n, c.k) + 255) / 256 * 256), bytes_(stride_ * static_cast<size_t>(c.groups)) {
    for (int64_t g = 0; g < c.groups; ++g) {
      data_.push_back(bytes_.data() + static_cast<size_t>(g) * stride_);
      const WeightView all = experts.file_view(g);
      const WeightView parts[] = {{c.format, c.n / 2, c.k, all.data}, {c.format, c.n / 2, c.k, all.row(c.n / 2)}};
      layout.upload(c.gated ? std::span(parts) : std::span(&all, 1), bytes_.data() + static_cast<size_t>(g) * stride_,
                    gpu_uploader(), pool);
    }
    weights_ = {c.format, c.groups, c.n, c.k, &layout, data_, stride_};
  }
  const GroupedWeights* weights() const { return &weights_; }

 private:
  size_t stride_;
  GpuBytes bytes_;
  std::vector<const std::byte*> data_;
  GroupedWeights weights_;
};

// Random inputs of a case, and the expected output.
struct GroupedTask {
  // The experts may be more than the case has: quantizing them takes most of the time.
  GroupedTask(const GroupedCase& c, const TestExperts& experts, Random& random, ThreadPool& pool)
      : of(c),
        experts(experts),
        routing(c.rows, c.groups, c.per_row, c.spread, random),
        x(c.sum ? c.rows * c.per_row : c.rows, c.k, random),
        before(c.sum ? c.rows : c.rows * c.per_row, c.gated ? c.n / 2 : c.n),
        expected(before) {
    round_to(x, c.x);
    for (int64_t i = 0; i < c.groups * c.n; ++i) bias.push_back(random.normal());
    for (int64_t r = 0; r < c.rows && c.sum; ++r) {
      for (int64_t i = 0; i < c.n; ++i) before.at(r, i) = random.normal();
    }
    expect(pool);
  }

  void expect(ThreadPool& pool) {
    expected = before;
    const GroupedWeights weights = experts.file_rows();
    GroupedLinearOp::reference()->run(
        of.args(x.view(), &weights, of.bias ? bias.data() : nullptr, routing.view(), expected.view()),
        {&pool, nullptr});
    if (y_type() == DType::F16) saturate();
  }

  // Squares of the activation exceed the range of f16, where kernels saturate.
  void saturate() {
    constexpr float kMost = 65504;
    const Matrix y = expected.view();
    for (int64_t r = 0; r < y.rows; ++r) {
      for (int64_t i = 0; i < y.cols; ++i) expected.at(r, i) = std::clamp(expected.at(r, i), -kMost, kMost);
    }
  }

  DType y_type() const { return of.sum ? DType::F32 : of.x; }
  double tolerance() const { return of.precision == Precision::Exact ? 2e-5 : is_quantized(of.format) ? 2e-2 : 8e-3; }

  GroupedCase of;
  const TestExperts& experts;
  TestRouting routing;
  std::vector<float> bias;
  TestMatrix x, before, expected;
};

TestExperts experts_of(const GroupedCase& c, Random& random) { return {c.format, c.groups, c.n, c.k, random}; }

// Runs every kernel twice; returns how many ran.
int check(const GroupedCase& c, const TestExperts& all, Random& random, ThreadPool& pool) {
  GroupedTask task(c, all, random, pool);
  const GpuCopy x(task.x, c.x);
  const GpuBytes bias(task.bias);
  const GpuRouting routing(task.routing.view());
  int ran = 0;
  for (const auto* layout : cuda_kernels().layouts) {
    if (!layout->accepts(c.format, c.n, c.k, gpu().hardware())) continue;
    const GroupedLinearProblem problem = c.problem(*layout);
    std::unique_ptr<GpuExperts> experts;
    for (const auto* kernel : cuda_kernels().of<GroupedLinearOp>()) {
      if (!kernel->can_run(problem, gpu().hardware())) continue;
      if (experts == nullptr) experts = std::make_unique<GpuExperts>(task.experts, c, *layout, pool);
      SCOPED_TRACE(to_string(problem) + " with " + std::string(kernel->name()));
      EXPECT_GT(kernel->estimate_us(problem, gpu().hardware()), 0);
      const GpuBytes workspace(
          std::vector<std::byte>(kernel->workspace_bytes(problem, gpu().hardware()), std::byte{0xff}));
      TestMatrix first = task.before, second = task.before;
      for (TestMatrix* y : {&first, &second}) {
        const GpuCopy gpu_y(*y, task.y_type());
        Routing routed = routing.view();
        routed.settled = y == &second;  // no other kernel runs
        kernel->run(c.args(x.view(), experts->weights(), c.bias ? bias.as<float>() : nullptr, routed, gpu_y.view()),
                    on_gpu(workspace.data()));
        gpu_y.read(*y);
      }
      EXPECT_TRUE(first.spare_is_untouched());
      EXPECT_LE(first.distance(task.expected), task.tolerance());
      EXPECT_TRUE(first.same_bits(second));
      if (c.groups > 1 && c.spread != Spread::ByHead) {  // two devices that hold some of the groups each
        TestMatrix parts = task.before;
        const GpuCopy gpu_y(parts, task.y_type());
        const int64_t cut = 1 + random.below(static_cast<int>(c.groups) - 1);
        for (const auto& [begin, count] : {std::pair(int64_t{0}, cut), std::pair(cut, c.groups - cut)}) {
          GroupedWeights some = *experts->weights();
          some.groups = count;
          some.data = some.data.subspan(static_cast<size_t>(begin));
          kernel->run(c.args(x.view(), &some, c.bias ? bias.as<float>() + begin * c.n : nullptr,
                             routing.view().part(begin, count), gpu_y.view()),
                      on_gpu(workspace.data()));
        }
        gpu_y.read(parts);
        EXPECT_LE(parts.distance(task.expected), task.tolerance());
      }
      ++ran;
    }
  }
  return ran;
}

int check(const GroupedCase& c, Random& random, ThreadPool& pool) {
  return check(c, experts_of(c, random), random, pool);
}

int64_t width(DType format, int64_t about) {
  return (about + info(format).block - 1) / info(format).block * info(format).block;
}

struct Routed {
  int64_t rows, groups, per_row;
  Spread spread;
};

// The forms with every routing; those whose rows are a multiple of `biased` have biases. All activations take turns.
void check_all(std::initializer_list<GroupedCase> forms, std::span<const Routed> routings, int64_t biased,
               Random& random, ThreadPool& pool) {
  for (GroupedCase c : forms) {
    const TestExperts experts = experts_of(c, random);
    for (size_t i = 0; i < routings.size(); ++i) {
      c.rows = routings[i].rows;
      c.groups = routings[i].groups;
      c.per_row = routings[i].per_row;
      c.spread = routings[i].spread;
      c.bias = c.rows % biased == 0;
      c.activation = static_cast<Activation>(i % 6);
      EXPECT_GT(check(c, experts, random, pool), 0);
    }
  }
}

class CudaGroupedLinear : public testing::TestWithParam<DType> {
 protected:
  ThreadPool pool_{8};
};

TEST_P(CudaGroupedLinear, AllForms) {
  const DType format = GetParam(), x = format == DType::F16 ? DType::F16 : DType::BF16;
  Random random(24);
  constexpr int64_t kGroups = 12;
  const Routed routed[] = {
      {1, 8, 4, Spread::Even},        {1, 5, 5, Spread::Even},        {2, 9, 3, Spread::OneExpert},
      {7, 6, 2, Spread::FewExperts},  {8, kGroups, 4, Spread::Even},  {33, 5, 2, Spread::OneExpert},
      {70, kGroups, 3, Spread::Even}, {150, 4, 1, Spread::OneExpert}, {260, 3, 2, Spread::FewExperts},
  };
  check_all({{format, x, 1, kGroups, 1, 160, width(format, 328), Spread::Even, true, false, false},
             {format, x, 1, kGroups, 1, 88, width(format, 168), Spread::Even, false, true, false},
             {format, x, 1, kGroups, 1, 71, width(format, 264), Spread::Even, false, false, false}},
            routed, 2, random, pool_);
}

// The products of latent attention: DeepSeek's, GLM's and MiniCPM3's sizes, and outputs that end inside of a block.
TEST(CudaGroupedLinearOfHeads, EveryBatch) {
  ThreadPool pool(8);
  Random random;
  SCOPED_TRACE("seed " + std::to_string(random.seed()));
  struct Sizes {
    int64_t heads, n, k;
  };
  for (const auto& [heads, n, k] :
       {Sizes{16, 512, 128}, Sizes{16, 128, 512}, Sizes{5, 512, 192}, Sizes{40, 256, 64}, Sizes{3, 72, 256}}) {
    for (const DType format : {DType::BF16, DType::F16}) {
      GroupedCase c{format, format, heads, heads, 1, n, k, Spread::ByHead, false, false, false};
      const TestExperts matrices = experts_of(c, random);
      for (const int64_t rows : {1, 3, 8, 9, 16, 31, 64, 65, 130}) {
        c.rows = rows * heads;
        c.bias = rows == 3;
        EXPECT_GT(check(c, matrices, random, pool), 2);
      }
    }
  }
}

// Inputs in rows of the batch, where other columns lie between the heads.
TEST(CudaGroupedLinearOfHeads, EarlyInputs) {
  ThreadPool pool(8);
  Random random;
  SCOPED_TRACE("seed " + std::to_string(random.seed()));
  constexpr int64_t kHeads = 16, kWidth = 128, kEach = kWidth + 64;
  for (const int64_t rows : {1, 7, 64, 70}) {
    const GroupedCase c{DType::BF16, DType::BF16,    rows * kHeads, kHeads, 1,    512,
                        kWidth,      Spread::ByHead, false,         false,  false};
    const TestExperts matrices = experts_of(c, random);
    GroupedTask task(c, matrices, random, pool);
    TestMatrix wide(rows, kHeads * kEach);
    for (int64_t pair = 0; pair < rows * kHeads; ++pair) {
      for (int64_t i = 0; i < kWidth; ++i) wide.at(pair / kHeads, pair % kHeads * kEach + i) = task.x.at(pair, i);
    }
    const GpuCopy x(task.x, c.x), early(wide, c.x);
    const GpuRouting routing(task.routing.view());
    int early_ones = 0;
    for (const auto* layout : cuda_kernels().layouts) {
      if (!layout->accepts(c.format, c.n, c.k, gpu().hardware())) continue;
      const GpuExperts experts(task.experts, c, *layout, pool);
      for (const auto* kernel : cuda_kernels().of<GroupedLinearOp>()) {
        if (!kernel->can_run(c.problem(*layout), gpu().hardware())) continue;
        const GpuBytes workspace(kernel->workspace_bytes(c.problem(*layout), gpu().hardware()));
        TestMatrix y = task.before;
        const GpuCopy gpu_y(y, task.y_type());
        auto args = c.args(x.view(), experts.weights(), nullptr, routing.view(), gpu_y.view());
        args.early_x = early.view();
        kernel->run(args, on_gpu(workspace.data()));
        gpu_y.read(y);
        EXPECT_TRUE(y.spare_is_untouched());
        EXPECT_LE(y.distance(task.expected), task.tolerance()) << kernel->name() << ", " << rows;
        early_ones += kernel->name() == "cuda_heads";
      }
    }
    EXPECT_GE(early_ones, 1);
  }
}

// More tiles than multiprocessors: blocks that stay take several, whose rings go on from one to the next.
TEST_P(CudaGroupedLinear, ManyTiles) {
  const DType format = GetParam(), x = format == DType::F16 ? DType::F16 : DType::BF16;
  Random random(29);
  GroupedCase gated{format, x, 1, 8, 1, 4416, width(format, 200), Spread::Even, true, false, true};
  GroupedCase down{format, x, 1, 8, 1, 4408, width(format, 200), Spread::Even, false, true, true};
  for (GroupedCase* c : {&gated, &down}) {
    const TestExperts experts = experts_of(*c, random);
    for (const auto& [rows, per_row] : {std::pair(600, 2), std::pair(1, 8), std::pair(3, 5)}) {
      c->rows = rows;
      c->per_row = per_row;
      EXPECT_GT(check(*c, experts, random, pool_), 0);
    }
  }
}

// Products of so many pairs are rounded, and a thread adds up more of them than it requests at once.
TEST_P(CudaGroupedLinear, ManyPairs) {
  const DType format = GetParam(), x = format == DType::F16 ? DType::F16 : DType::BF16;
  Random random(30);
  for (const int64_t n : {88, 90}) {
    GroupedCase c{format, x, 1, 12, 10, n, width(format, 72), Spread::Even, false, true, false};
    const TestExperts experts = experts_of(c, random);
    for (const int64_t rows : {70, 430}) {
      c.rows = rows;
      EXPECT_GT(check(c, experts, random, pool_), 0);
    }
  }
}

// Rows longer than any ring of stages, and more columns than a block has.
TEST_P(CudaGroupedLinear, LongRows) {
  const DType format = GetParam(), x = format == DType::F16 ? DType::F16 : DType::BF16;
  Random random(25);
  for (const int64_t rows : {4, 40}) {
    EXPECT_GT(check({format, x, rows, 3, 2, 160, width(format, 2568), Spread::Even, true, false, false}, random, pool_),
              0);
    EXPECT_GT(check({format, x, rows, 3, 2, 136, width(format, 1544), Spread::Even, false, true, true}, random, pool_),
              0);
  }
}

TEST_P(CudaGroupedLinear, Exact) {
  Random random(26);
  for (const int64_t rows : {1, 6}) {
    GroupedCase c{GetParam(), DType::F32, rows, 6, 3, 34, width(GetParam(), 67), Spread::Even, true, false, true};
    c.precision = Precision::Exact;
    EXPECT_GT(check(c, random, pool_), 0);
    c.gated = false;
    c.sum = true;
    EXPECT_GT(check(c, random, pool_), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaGroupedLinear, testing::ValuesIn([] {
                           std::vector<DType> all;
                           for (const auto& format : all_dtypes()) all.push_back(format.dtype);
                           return all;
                         }()),
                         [](const auto& info) { return std::string(name(info.param)); });

// Many pairs of a group: whole tiles, and tails of all lengths.
TEST(CudaGroupedLinearShares, LargeGroups) {
  ThreadPool pool(8);
  Random random(31);
  const Routed routed[] = {
      {256, 1, 1, Spread::Even},       {300, 1, 1, Spread::Even},       {326, 1, 1, Spread::Even},
      {520, 4, 2, Spread::Even},       {450, 3, 2, Spread::Even},       {513, 2, 1, Spread::OneExpert},
      {900, 5, 2, Spread::FewExperts}, {640, 4, 2, Spread::FewExperts},
  };
  for (const DType type : {DType::BF16, DType::F16}) {
    check_all({{type, type, 1, 5, 1, 600, 328, Spread::Even, true, false, false},
               {type, type, 1, 5, 1, 520, 200, Spread::Even, false, true, false},
               {type, type, 1, 5, 1, 71, 64, Spread::Even, false, false, false}},
              routed, 4, random, pool);
  }
}

// Matrices of a few rows: a block has many tiles of pairs, up to the most that a kernel can. And as many groups as a
// kernel can have, most of them without pairs.
TEST(CudaGroupedLinearShares, BlocksHaveManyTilesOfPairs) {
  ThreadPool pool(8);
  Random random(32);
  const Routed routed[] = {{2700, 3, 2, Spread::Even},
                           {15000, 3, 2, Spread::Even},
                           {77, 512, 10, Spread::Even},
                           {9, 512, 10, Spread::OneExpert}};
  for (const DType format : {DType::MXFP4, DType::Q4_0, DType::Q6_K}) {
    check_all({{format, DType::BF16, 1, 512, 1, 32, width(format, 160), Spread::Even, true, false, false},
               {format, DType::BF16, 1, 512, 1, 16, width(format, 96), Spread::Even, false, true, false}},
              routed, 9, random, pool);
  }
}

// A batch-invariant plan has one kernel for one row and for many: a row alone has the bits that it has among others.
TEST(CudaGroupedLinearShares, RowsAloneHaveTheSameBits) {
  ThreadPool pool(8);
  Random random(33);
  constexpr int64_t kMany = 130;
  for (const DType format : {DType::MXFP4, DType::Q8_0, DType::Q6_K}) {
    for (const bool sum : {false, true}) {
      const GroupedCase c{format, DType::BF16, kMany, 9, 3, 96, width(format, 1056), Spread::FewExperts,
                          !sum,   sum,         true};
      const TestExperts all = experts_of(c, random);
      GroupedTask task(c, all, random, pool);
      const GpuCopy x(task.x, c.x);
      const GpuBytes bias(task.bias);
      for (const auto* layout : cuda_kernels().layouts) {
        if (!layout->accepts(c.format, c.n, c.k, gpu().hardware())) continue;
        const GpuExperts experts(all, c, *layout, pool);
        GroupedLinearProblem many = c.problem(*layout);
        many.invariant = true;
        GroupedLinearProblem one = many;
        one.rows = 1;
        for (const auto* kernel : cuda_kernels().of<GroupedLinearOp>()) {
          if (!kernel->can_run(many, gpu().hardware()) || !kernel->can_run(one, gpu().hardware())) continue;
          SCOPED_TRACE(to_string(many) + " with " + std::string(kernel->name()));
          const GpuBytes workspace(kernel->workspace_bytes(many, gpu().hardware()));
          const auto run = [&](Matrix rows, const Routing& routing, Matrix y) {
            GroupedLinearArgs args = c.args(rows, experts.weights(), bias.as<float>(), routing, y);
            args.invariant = true;
            kernel->run(args, on_gpu(workspace.data()));
          };
          TestMatrix together = task.before, alone = task.before;
          const GpuCopy gpu_together(together, task.y_type()), gpu_alone(alone, task.y_type());
          const GpuRouting routing(task.routing.view());
          run(x.view(), routing.view(), gpu_together.view());
          const int64_t of_x = sum ? c.per_row : 1, of_y = sum ? 1 : c.per_row;  // rows of x and y for each row
          for (int64_t row = 0; row < kMany; ++row) {
            const GpuRouting own(task.routing.of_row(row).view());
            run(x.view().rows_from(row * of_x, of_x), own.view(), gpu_alone.view().rows_from(row * of_y, of_y));
          }
          gpu_together.read(together);
          gpu_alone.read(alone);
          EXPECT_TRUE(alone.same_bits(together));
        }
      }
    }
  }
}

// A few more tiles than multiprocessors: two blocks share the pairs of a row, whose number may be odd.
TEST(CudaGroupedLinearShares, BlocksShareThePairsOfARow) {
  ThreadPool pool(8);
  Random random(31);
  for (const DType format : {DType::MXFP4, DType::Q4_0, DType::Q6_K}) {
    GroupedCase c{format, DType::BF16, 1, 9, 9, 2152, width(format, 2088), Spread::Even, false, true, true};
    const TestExperts experts = experts_of(c, random);
    for (const int64_t per_row : {9, 4}) {
      c.per_row = per_row;
      EXPECT_GT(check(c, experts, random, pool), 0);
    }
  }
}

// A recorded step runs with the routing that its buffers hold when it is replayed.
TEST(CudaGroupedLinearSteps, ReplayWithAnotherRouting) {
  ThreadPool pool(8);
  for (const DType format : {DType::BF16, DType::Q4_0}) {
    for (const bool sum : {false, true}) {
      Random random(27);
      const GroupedCase c{format, DType::BF16, 24, 12, 3, 64, 512, Spread::Even, false, sum, true};
      const TestExperts all = experts_of(c, random);
      GroupedTask task(c, all, random, pool);
      const GpuCopy x(task.x, c.x);
      const GpuBytes bias(task.bias);
      const LinearLayout& layout = *cuda_kernels().layouts.front();
      const GpuExperts experts(task.experts, c, layout, pool);
      for (const auto* kernel : cuda_kernels().of<GroupedLinearOp>()) {
        const GroupedLinearProblem problem = c.problem(layout);
        if (!kernel->can_run(problem, gpu().hardware())) continue;
        SCOPED_TRACE(to_string(problem) + " with " + std::string(kernel->name()));
        const GpuRouting routing(task.routing.view());
        const GpuBytes workspace(kernel->workspace_bytes(problem, gpu().hardware()));
        const GpuCopy y(task.before, task.y_type());
        ASSERT_TRUE(gpu().begin_recording());
        kernel->run(c.args(x.view(), experts.weights(), bias.as<float>(), routing.view(), y.view()),
                    on_gpu(workspace.data()));
        const auto recording = gpu().end_recording();
        ASSERT_NE(recording, nullptr);
        TestMatrix out = task.before;
        for (const Spread spread : {Spread::OneExpert, Spread::FewExperts}) {
          task.routing = TestRouting(c.rows, c.groups, c.per_row, spread, random);
          routing.write(task.routing.view());
          if (sum) task.before = out;  // replays add to the same y
          task.expect(pool);
          recording->replay();
          y.read(out);
          EXPECT_LE(out.distance(task.expected), task.tolerance());
        }
        for (int64_t r = 0; r < c.rows && sum; ++r) {
          for (int64_t i = 0; i < c.n; ++i) task.before.at(r, i) = random.normal();
        }
      }
    }
  }
}

// Router, gate and up, and down in a chain of programmatic launches give the bits of launches that wait. Each round has
// another routing in the same buffers, and down may read it before gate and up are complete.
TEST(CudaGroupedLinearSteps, OverlapChangesNoBits) {
  if (!starts_early(gpu().hardware())) GTEST_SKIP() << "this GPU has no programmatic launches";
  ThreadPool pool(8);
  const LinearLayout& layout = *cuda_kernels().layouts.front();
  for (const DType format : {DType::BF16, DType::Q8_0, DType::Q4_0, DType::MXFP4}) {
    for (const int64_t rows : {1, 2, 5, 30, 90}) {
      Random random(28);
      constexpr int kRounds = 4;
      const int64_t groups = 20, per_row = 4, hidden = 512, inner = 256;
      const GroupedCase up{format, DType::BF16,  rows, groups, per_row, 2 * inner,
                           hidden, Spread::Even, true, false,  false};
      const GroupedCase down{format, DType::BF16,  rows,  groups, per_row, hidden,
                             inner,  Spread::Even, false, true,   true};
      const TestExperts ups = experts_of(up, random), downs = experts_of(down, random);
      GroupedTask first(up, ups, random, pool), second(down, downs, random, pool);
      const GpuExperts up_experts(first.experts, up, layout, pool), down_experts(second.experts, down, layout, pool);
      const GpuBytes bias(second.bias);
      TestMatrix logits(rows * kRounds, groups, random), inside(rows * per_row, inner);
      const GpuCopy gpu_logits(logits), x(first.x, DType::BF16), gpu_inside(inside, DType::BF16);
      const RouterSettings settings{.per_row = static_cast<int>(per_row), .renormalize = true};
      const auto* router = cuda_kernels().of<RouterOp>().front();
      for (const auto* for_up : cuda_kernels().of<GroupedLinearOp>()) {
        for (const auto* for_down : cuda_kernels().of<GroupedLinearOp>()) {
          if (!for_up->can_run(up.problem(layout), gpu().hardware()) ||
              !for_down->can_run(down.problem(layout), gpu().hardware()))
            continue;
          SCOPED_TRACE(std::string(name(format)) + " rows=" + std::to_string(rows) + " " + std::string(for_up->name()) +
                       " " + std::string(for_down->name()));
          const GpuBytes workspace(std::max({router->workspace_bytes({settings, groups, rows}, gpu().hardware()),
                                             for_up->workspace_bytes(up.problem(layout), gpu().hardware()),
                                             for_down->workspace_bytes(down.problem(layout), gpu().hardware())}));
          TestMatrix results[] = {second.before, second.before};
          for (int i = 0; i < 2; ++i) {
            TestRouting routed(rows, groups, per_row);
            const GpuRouting routing(routed.view());
            Routing settled = routing.view();
            settled.settled = i == 1;
            const GpuCopy y(second.before);
            Executor executor = on_gpu(workspace.data());
            executor.overlap = i == 1;
            for (int round = 0; round < kRounds; ++round) {
              router->run({settings, gpu_logits.view().rows_from(round * rows, rows), nullptr, nullptr, routing.view()},
                          executor);
              for_up->run(up.args(x.view(), up_experts.weights(), nullptr, routing.view(), gpu_inside.view()),
                          executor);
              for_down->run(down.args(gpu_inside.view(), down_experts.weights(), bias.as<float>(), settled, y.view()),
                            executor);
            }
            y.read(results[i]);
          }
          EXPECT_TRUE(results[0].same_bits(results[1]));
          EXPECT_FALSE(std::isnan(results[0].distance(second.before)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
