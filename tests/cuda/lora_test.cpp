// The ops of low-rank adapters.
#include "cuda/gpu_routing.h"
#include "kernels/grouped_lora_cases.h"
#include "kernels/kernel_set.h"

namespace millrace {
namespace {

// The operands of a batch in GPU memory.
class GpuLora {
 public:
  explicit GpuLora(LoraBatch& batch)
      : batch_(batch),
        memory_(batch.bytes),
        adapters_(batch.adapters),
        ids_(batch.ids),
        chosen_(batch.chosen),
        table_(batch.table_at(memory_.data())),
        x_(batch.x, batch.problem.format) {}

  // `most_rank`: otherwise the kernel does not know it.
  LoraOp::Args args(Matrix y, bool most_rank = true) const {
    LoraOp::Args args = batch_.args(x_.view(), y, {});
    args.adapters = adapters_.as<int32_t>();
    args.table = table_.as<LoraWeights>();
    if (batch_.problem.embedding) args.ids = {ids_.as<int32_t>(), batch_.ids.size()};
    args.chosen = chosen_.as<int32_t>();
    if (most_rank) args.most_rank = batch_.most_rank();
    args.next = args.table;  // fetching ahead changes no results
    args.next_k = batch_.problem.k;
    return args;
  }

 private:
  LoraBatch& batch_;
  GpuBytes memory_, adapters_, ids_, chosen_, table_;
  GpuCopy x_;
};

double allowed_error(DType out) { return out == DType::F32 ? 1e-5 : out == DType::F16 ? 2e-3 : 1e-2; }

LoraOp::Args reference_args(LoraBatch& batch, TestMatrix& x, TestMatrix& y, const std::vector<LoraWeights>& table) {
  return batch.args(x.view(), y.view(), table);
}

// Calls f(kernel, workspace) for the kernels that can run the problem and that `takes`; returns how many.
template <class Takes, class F>
int for_kernels(const LoraOp::Problem& problem, Takes takes, F f) {
  int ran = 0;
  for (const Kernel<LoraOp>* kernel : cuda_kernels().of<LoraOp>()) {
    if (!kernel->can_run(problem, gpu().hardware()) || !takes(*kernel)) continue;
    SCOPED_TRACE(std::string(kernel->name()));
    const GpuBytes workspace(kernel->workspace_bytes(problem, gpu().hardware()));
    f(*kernel, on_gpu(workspace.data()));
    ++ran;
  }
  return ran;
}

TEST(CudaLora, MatchesTheReference) {
  for (const LoraCase& c : lora_cases()) {
    for (const DType format : {DType::F32, DType::BF16, DType::F16}) {
      for (const DType out : {DType::F32, format}) {
        Random random;
        SCOPED_TRACE(c.name + " " + std::string(name(format)) + " seed " + std::to_string(random.seed()));
        LoraBatch batch(c, format, random);
        round_to(batch.x, format);
        round_to(batch.y, out);
        TestMatrix expected = batch.y;
        const auto table = batch.table_at(batch.bytes.data());
        LoraOp::reference()->run(reference_args(batch, batch.x, expected, table), {});
        const GpuLora operands(batch);
        const auto every = [](const Kernel<LoraOp>&) { return true; };
        const int ran = for_kernels(batch.problem, every, [&](const Kernel<LoraOp>& kernel, const Executor& executor) {
          std::vector<TestMatrix> results;
          for (const bool knows_rank : {true, false}) {
            TestMatrix y = batch.y;
            const GpuCopy gpu_y(y, out);
            kernel.run(operands.args(gpu_y.view(), knows_rank), executor);
            gpu_y.read(y);
            EXPECT_LT(y.distance(expected), allowed_error(out));
            EXPECT_TRUE(y.spare_is_untouched());
            results.push_back(y);
          }
          EXPECT_TRUE(results[0].same_bits(results[1]));
        });
        const bool decodes =
            gpu().hardware().architecture == 90 && format != DType::F32 && !c.embedding && c.rows <= 64 && c.k % 8 == 0;
        EXPECT_EQ(ran, decodes ? 2 : 1);
      }
    }
  }
}

// A row's bits depend neither on the other rows nor on where it lies.
TEST(CudaLora, RowsAreIndependent) {
  for (const LoraCase& c : lora_cases()) {
    Random random;
    SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
    LoraBatch batch(c, DType::BF16, random);
    const GpuLora operands(batch);
    const auto every = [](const Kernel<LoraOp>&) { return true; };
    for_kernels(batch.problem, every, [&](const Kernel<LoraOp>& kernel, const Executor& executor) {
      TestMatrix together = batch.y, apart = batch.y;
      const GpuCopy gpu_together(together), gpu_apart(apart);
      kernel.run(operands.args(gpu_together.view()), executor);
      for (int64_t row = 0; row < c.rows; ++row) {
        LoraOp::Args args = operands.args(gpu_apart.view());
        args.y = args.y.rows_from(row, 1);
        if (c.embedding) {
          args.ids = args.ids.subspan(static_cast<size_t>(row), 1);
        } else {
          args.x = args.x.rows_from(row, 1);
        }
        args.adapters += row;
        kernel.run(args, executor);
      }
      gpu_together.read(together);
      gpu_apart.read(apart);
      EXPECT_TRUE(together.same_bits(apart));
    });
  }
}

// x is the first half of a norm.
TEST(CudaLora, DividesByTheRootMeanSquare) {
  constexpr float kEpsilon = 1e-5f;
  for (const LoraCase& c : lora_cases()) {
    if (c.embedding || c.k % 16 != 0) continue;
    Random random;
    SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
    LoraBatch batch(c, DType::BF16, random);
    round_to(batch.x, DType::BF16);
    TestMatrix divided = batch.x, expected = batch.y;
    std::vector<float> squares;
    for (int64_t row = 0; row < c.rows; ++row) {
      double sum = 0;
      for (int64_t part = 0; part < c.k / 16; ++part) {  // arbitrary: they need not be those of x
        squares.push_back(static_cast<float>((row % 3 + 1) * (1 + part % 7)));
        sum += squares.back();
      }
      const double divisor = std::sqrt(sum / double(c.k) + kEpsilon);
      for (int64_t i = 0; i < c.k; ++i) divided.at(row, i) = static_cast<float>(batch.x.at(row, i) / divisor);
    }
    const auto table = batch.table_at(batch.bytes.data());
    LoraOp::reference()->run(reference_args(batch, divided, expected, table), {});
    const GpuLora operands(batch);
    const GpuBytes gpu_squares(squares);
    const auto shares = [&](const auto& kernel) { return kernel.shares_between(batch.problem, gpu().hardware()); };
    for_kernels(batch.problem, shares, [&](const Kernel<LoraOp>& kernel, const Executor& executor) {
      TestMatrix y = batch.y;
      const GpuCopy gpu_y(y);
      LoraOp::Args args = operands.args(gpu_y.view());
      args.squares = gpu_squares.as<float>();
      args.epsilon = kEpsilon;
      kernel.run(args, executor);
      gpu_y.read(y);
      EXPECT_LT(y.distance(expected), allowed_error(DType::F32));
    });
  }
}

// silu(gate) * up behind the adapters, also of rows without one.
TEST(CudaLora, ComputesTheGate) {
  for (const LoraCase& c : lora_cases()) {
    if (c.columns.size() != 2 || c.columns[0] != c.columns[1] || c.embedding) continue;
    for (const DType format : {DType::BF16, DType::F16}) {
      Random random;
      SCOPED_TRACE(c.name + " " + std::string(name(format)) + " seed " + std::to_string(random.seed()));
      LoraBatch batch(c, format, random);
      round_to(batch.x, format);
      round_to(batch.y, format);
      const int64_t half = c.columns[0];
      TestMatrix sums = batch.y, expected(c.rows, half);
      const auto table = batch.table_at(batch.bytes.data());
      LoraOp::reference()->run(reference_args(batch, batch.x, sums, table), {});
      for (int64_t row = 0; row < c.rows; ++row) {
        for (int64_t i = 0; i < half; ++i) {
          const int64_t group = c.group > 0 ? c.group : half, at = i / group * 2 * group + i % group;
          const double gate = sums.at(row, at), up = sums.at(row, at + group);
          expected.at(row, i) = static_cast<float>(gate / (1 + std::exp(-gate)) * up);
        }
      }
      const GpuLora operands(batch);
      const auto takes = [&](const auto& kernel) { return kernel.takes_along(batch.problem, gpu().hardware()); };
      for_kernels(batch.problem, takes, [&](const Kernel<LoraOp>& kernel, const Executor& executor) {
        TestMatrix y = batch.y, feed(c.rows, half);
        const GpuCopy gpu_y(y, format), gpu_feed(feed, format);
        LoraOp::Args args = operands.args(gpu_y.view());
        args.feed = gpu_feed.view();
        args.gate_group = c.group;
        kernel.run(args, executor);
        gpu_feed.read(feed);
        gpu_y.read(y);
        EXPECT_LT(feed.distance(expected), allowed_error(format));
        EXPECT_TRUE(feed.spare_is_untouched());
        EXPECT_TRUE(y.same_bits(batch.y));
      });
    }
  }
}

TEST(CudaGroupedLora, MatchesTheReference) {
  for (const GroupedLoraCase& c : grouped_lora_cases()) {
    for (const DType format : {DType::F32, DType::BF16, DType::F16}) {
      for (const DType out : {DType::F32, format}) {
        Random random;
        SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
        GroupedLoraBatch batch(c, format, random);
        round_to(batch.x, format);
        round_to(batch.y, out);
        TestMatrix expected = batch.y, y = batch.y;
        GroupedLoraOp::reference()->run(batch.args(batch.x.view(), expected.view(), batch.table_at(batch.bytes.data())),
                                        {});
        const GpuBytes memory(batch.bytes), adapters(batch.adapters);
        const GpuBytes table(batch.table_at(memory.data()));
        const GpuRouting routing(batch.routing.view());
        const GpuCopy gpu_x(batch.x, format), gpu_y(y, out);
        GroupedLoraOp::Args args = batch.args(gpu_x.view(), gpu_y.view(), {});
        args.adapters = adapters.as<int32_t>();
        args.table = table.as<LoraWeights>();
        args.routing = routing.view();
        for (const Kernel<GroupedLoraOp>* kernel : cuda_kernels().of<GroupedLoraOp>()) {
          ASSERT_TRUE(kernel->can_run(batch.problem, gpu().hardware()));
          const GpuBytes workspace(kernel->workspace_bytes(batch.problem, gpu().hardware()));
          kernel->run(args, on_gpu(workspace.data()));
          gpu_y.read(y);
          EXPECT_LT(y.distance(expected), out == DType::F32 ? 1e-5 : out == DType::F16 ? 2e-3 : 1e-2) << kernel->name();
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
