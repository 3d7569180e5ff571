// Steps that the CPU takes part in: expected times from measured ones, and the order of recorded parts.
#include <gmock/gmock.h>

#include "base/thread_pool.h"
#include "dataflow/ops.h"
#include "dataflow/step_recording.h"
#include "hardware/this_machine.h"
#include "kernels/linear/rows/rows.h"

namespace millrace {
namespace {

GroupedLinearProblem product(int64_t n) { return {.layout = "rows", .groups = 64, .n = n, .k = 128, .per_row = 8}; }

// A CPU that reads at half of the rate that estimates assume, and takes 5 us more for each call.
TEST(ProductCost, PredictsAnyNumberOfExperts) {
  const auto estimated = [](double experts) { return 2 + 10 * experts; };
  const auto truth = [](double experts) { return 9 + 20 * experts; };
  const std::vector<ProductCost> costs{
      fit_product_cost(product(256), {estimated(8), estimated(42)}, {truth(8), truth(42)}),
      fit_product_cost(product(512), {estimated(8), estimated(42)}, {estimated(8), estimated(42)})};
  for (const double experts : {0.5, 2.0, 4.0, 6.0, 40.0}) {
    EXPECT_NEAR(corrected_us(costs, product(256), estimated(experts)), truth(experts), 1e-9);
    EXPECT_NEAR(corrected_us(costs, product(512), estimated(experts)), estimated(experts), 1e-9);
    EXPECT_EQ(corrected_us(costs, product(1024), estimated(experts)), estimated(experts));  // not measured
  }
  // The placement does not matter, only the matrix. Prompts are bound by arithmetic.
  GroupedLinearProblem half = product(256);
  half.groups = 32, half.all_groups = 64, half.rows = 8;
  EXPECT_NEAR(corrected_us(costs, half, estimated(4)), truth(4), 1e-9);
  half.rows = 512;
  EXPECT_EQ(corrected_us(costs, half, estimated(32)), estimated(32));
}

TEST(ProductCost, NoiseKeepsBothPartsPositive) {
  const ProductTimes estimated{10, 80};
  for (const ProductTimes measured : {ProductTimes{90, 80}, ProductTimes{1, 200}, ProductTimes{80, 80}}) {
    const ProductCost cost = fit_product_cost(product(256), estimated, measured);
    EXPECT_GE(cost.call_us, 0);
    EXPECT_GT(cost.factor, 0);
  }
}

TEST(ProductCost, IsMeasuredOnceForEveryKindOfProduct) {
  ThreadPool pool(1);
  const auto device = host_device(this_machine(1, false, detect_isa()));
  Ops ops(cpu_kernels(), *device, pool, nullptr, {});
  EXPECT_TRUE(measure_products(ops).empty());
  Grouped layer;
  layer.weights = {DType::F32, 8, 256, 512, &rows_layout()};
  layer.all_groups = 16;
  layer.per_row = 2;
  const Grouped again = layer;
  const Matrix x{DType::F32, 1, 512, 512, nullptr}, y{DType::F32, 2, 256, 256, nullptr};
  ops.observe(Ops::Mode::Plan);
  for (const Grouped* g : {&static_cast<const Grouped&>(layer), &again})
    ops.grouped_linear(x, *g, {.rows = 1, .per_row = 2, .groups = 8}, y);
  ops.observe(Ops::Mode::Run);
  const std::vector<ProductCost> costs = measure_products(ops);
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_GE(costs[0].call_us, 0);
  EXPECT_GT(costs[0].factor, 0);
}

TEST(StepRecording, ReplaysItsPartsInOrder) {
  std::vector<int> order;
  StepRecording step;
  for (int part = 0; part < 5; ++part) step.add(std::make_unique<HostWork>([&order, part] { order.push_back(part); }));
  step.replay();
  step.replay();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4));
}

}  // namespace
}  // namespace millrace
