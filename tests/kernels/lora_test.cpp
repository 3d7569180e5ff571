// The op of low-rank adapters.
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "kernels/lora_cases.h"

namespace millrace {
namespace {

TEST(Lora, KernelsMatchTheReference) {
  for (const LoraCase& c : lora_cases()) {
    for (const DType format : {DType::F32, DType::BF16}) {
      Random random;
      LoraBatch batch(c, format, random);
      const auto table = batch.table_at(batch.bytes.data());
      TestMatrix expected = batch.y;
      LoraOp::reference()->run(batch.args(batch.x.view(), expected.view(), table), {});
      EXPECT_GT(batch.y.distance(expected), 0.1) << c.name;
      for (const Kernel<LoraOp>* kernel : LoraOp::cpu()) {
        if (!kernel->can_run(batch.problem, test_hardware())) continue;
        for (const int threads : {1, 3}) {
          SCOPED_TRACE(c.name + " " + std::string(kernel->name()) + " seed " + std::to_string(random.seed()));
          ThreadPool pool(threads);
          std::vector<std::byte> workspace(kernel->workspace_bytes(batch.problem, test_hardware()), std::byte{0xff});
          TestMatrix y = batch.y;
          kernel->run(batch.args(batch.x.view(), y.view(), table),
                      {&pool, workspace.data(), nullptr, &test_hardware()});
          EXPECT_LT(y.distance(expected), 1e-5);
          EXPECT_TRUE(y.spare_is_untouched());
        }
      }
    }
  }
}

TEST(Lora, ARowDoesNotDependOnTheOthers) {
  Random random;
  LoraBatch batch(lora_cases()[3], DType::F32, random);
  const auto table = batch.table_at(batch.bytes.data());
  ThreadPool pool(2);
  for (const Kernel<LoraOp>* kernel : LoraOp::cpu()) {
    if (!kernel->can_run(batch.problem, test_hardware())) continue;
    std::vector<std::byte> workspace(kernel->workspace_bytes(batch.problem, test_hardware()));
    const Executor executor{&pool, workspace.data(), nullptr, &test_hardware()};
    TestMatrix all = batch.y, one = batch.y;
    kernel->run(batch.args(batch.x.view(), all.view(), table), executor);
    for (int64_t row = 0; row < batch.problem.rows; ++row) {
      LoraOp::Args args = batch.args(batch.x.view().rows_from(row, 1), one.view().rows_from(row, 1), table);
      args.adapters += row;
      kernel->run(args, executor);
      for (int64_t c = 0; c < batch.problem.n; ++c) ASSERT_EQ(one.at(row, c), all.at(row, c)) << kernel->name();
    }
  }
}

}  // namespace
}  // namespace millrace
