// The op of low-rank adapters of experts.
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "kernels/grouped_lora_cases.h"

namespace millrace {
namespace {

TEST(GroupedLora, KernelsMatchTheReference) {
  for (const GroupedLoraCase& c : grouped_lora_cases()) {
    for (const DType format : {DType::F32, DType::BF16}) {
      Random random;
      GroupedLoraBatch batch(c, format, random);
      const auto table = batch.table_at(batch.bytes.data());
      TestMatrix expected = batch.y;
      GroupedLoraOp::reference()->run(batch.args(batch.x.view(), expected.view(), table), {});
      EXPECT_GT(batch.y.distance(expected), 0.1) << c.name;
      for (const Hardware& hardware : hardware_levels()) {
        for (const Kernel<GroupedLoraOp>* kernel : GroupedLoraOp::cpu()) {
          if (!kernel->can_run(batch.problem, hardware)) continue;
          for (const int threads : {1, 3}) {
            SCOPED_TRACE(c.name + " " + std::string(kernel->name()) + " seed " + std::to_string(random.seed()));
            ThreadPool pool(threads);
            std::vector<std::byte> workspace(kernel->workspace_bytes(batch.problem, hardware), std::byte{0xff});
            TestMatrix y = batch.y;
            kernel->run(batch.args(batch.x.view(), y.view(), table), {&pool, workspace.data(), nullptr, &hardware});
            EXPECT_LT(y.distance(expected), 1e-5);
            EXPECT_TRUE(y.spare_is_untouched());
          }
        }
      }
    }
  }
}

// A device that holds some of the experts adds what they contribute. Both parts together are the whole.
TEST(GroupedLora, PartsOfTheExpertsAddUp) {
  for (const GroupedLoraCase& c : grouped_lora_cases()) {
    Random random;
    SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
    GroupedLoraBatch batch(c, DType::F32, random);
    const auto table = batch.table_at(batch.bytes.data());
    ThreadPool pool(2);
    for (const Kernel<GroupedLoraOp>* kernel : GroupedLoraOp::cpu()) {
      if (!kernel->can_run(batch.problem, test_hardware())) continue;
      std::vector<std::byte> workspace(kernel->workspace_bytes(batch.problem, test_hardware()), std::byte{0xff});
      const Executor executor{&pool, workspace.data(), nullptr, &test_hardware()};
      TestMatrix whole = batch.y, parts = batch.y;
      kernel->run(batch.args(batch.x.view(), whole.view(), table), executor);
      const int64_t first = (c.experts + 1) / 2;
      for (const auto& [begin, count] : {std::pair(int64_t{0}, first), std::pair(first, c.experts - first)}) {
        auto own = table;
        for (LoraWeights& w : own) {
          if (w.a == nullptr) continue;
          if (w.place != nullptr) {
            w.place += begin;
            continue;
          }
          w.a += begin * w.a_step * int64_t{sizeof(float)};
          w.b += begin * w.b_step * int64_t{sizeof(float)};
        }
        GroupedLoraOp::Args args = batch.args(batch.x.view(), parts.view(), own);
        args.routing = args.routing.part(begin, count);
        kernel->run(args, executor);
      }
      EXPECT_LT(parts.distance(whole), 1e-5) << kernel->name();
    }
  }
}

TEST(GroupedLora, ARowDoesNotDependOnTheOthers) {
  for (const GroupedLoraCase& c : grouped_lora_cases()) {
    Random random;
    SCOPED_TRACE(c.name + " seed " + std::to_string(random.seed()));
    GroupedLoraBatch batch(c, DType::F32, random);
    const auto table = batch.table_at(batch.bytes.data());
    ThreadPool pool(2);
    for (const Kernel<GroupedLoraOp>* kernel : GroupedLoraOp::cpu()) {
      if (!kernel->can_run(batch.problem, test_hardware())) continue;
      std::vector<std::byte> workspace(kernel->workspace_bytes(batch.problem, test_hardware()));
      const Executor executor{&pool, workspace.data(), nullptr, &test_hardware()};
      TestMatrix all = batch.y, one = batch.y;
      kernel->run(batch.args(batch.x.view(), all.view(), table), executor);
      const Routing whole = batch.routing.view();
      for (int64_t row = 0; row < c.rows; ++row) {
        TestRouting alone(1, c.experts, c.per_row);
        std::copy_n(whole.chosen + row * c.per_row, c.per_row, alone.view().chosen);
        std::copy_n(whole.weights + row * c.per_row, c.per_row, alone.view().weights);
        sort_by_group(alone.view());
        const int64_t x_rows = c.sum ? c.per_row : 1, y_rows = c.sum ? 1 : c.per_row;
        GroupedLoraOp::Args args = batch.args(batch.x.view().rows_from(row * x_rows, x_rows),
                                              one.view().rows_from(row * y_rows, y_rows), table);
        args.routing = alone.view();
        args.adapters += row;
        kernel->run(args, executor);
      }
      EXPECT_TRUE(one.same_bits(all)) << kernel->name();
    }
  }
}

}  // namespace
}  // namespace millrace
