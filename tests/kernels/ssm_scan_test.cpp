// The selective scan: every kernel on sequences that come in pieces, against the quadratic form over whole sequences.
#include "base/thread_pool.h"
#include "ssm_scan_cases.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr int kScans = 2;

// Runs all steps; returns the outputs of whole sequences.
TestMatrix run_scans(const ScanCase& c, ScanInputs& in, const std::vector<std::vector<SequenceSlice>>& steps,
                     const Kernel<SsmScanOp>& kernel, const Executor& executor) {
  TestMatrix out(kScans * c.length, c.shape.inner());
  const size_t stride = static_cast<size_t>(c.shape.state_elements()) * sizeof(float) + 64;
  std::vector<std::byte> state((kScans + 1) * stride);
  for (const auto& slices : steps) {
    const int64_t rows = rows_of(slices);
    TestMatrix x(rows, c.shape.inner()), b(rows, c.shape.group_cols()), cc(rows, c.shape.group_cols());
    TestMatrix dt(rows, c.shape.heads), got(rows, c.shape.inner());
    take_rows(slices, kScans, c.length, in.x, x);
    take_rows(slices, kScans, c.length, in.b, b);
    take_rows(slices, kScans, c.length, in.c, cc);
    take_rows(slices, kScans, c.length, in.dt, dt);
    kernel.run({.shape = c.shape,
                .x = x.view(),
                .b = b.view(),
                .c = cc.view(),
                .dt = dt.view(),
                .out = got.view(),
                .dt_bias = in.dt_bias.data(),
                .a = in.a.data(),
                .d = in.d.data(),
                .least_step = c.least_step,
                .most_step = c.most_step,
                .state = state.data(),
                .stride = stride,
                .sequences = slices},
               executor);
    EXPECT_TRUE(got.spare_is_untouched());
    take_rows(slices, kScans, c.length, out, got, /*back=*/true);
  }
  return out;
}

TEST(SsmScan, PiecesContinueTheirSequences) {
  for (const ScanCase& c : scan_cases()) {
    Random random;
    ScanInputs in(c, kScans, random);
    TestMatrix expected = scanned(c, kScans, in);
    const auto steps = random_steps(kScans, c.length, 7, random);
    const auto single = random_steps(kScans, c.length, 1, random);  // row by row
    const SsmScanOp::Problem problem{c.shape, c.length};
    for (const Kernel<SsmScanOp>* kernel : SsmScanOp::cpu()) {
      if (!kernel->can_run(problem, test_hardware())) continue;
      SCOPED_TRACE(to_string(problem) + " " + std::string(kernel->name()) + " seed " + std::to_string(random.seed()));
      EXPECT_GT(kernel->estimate_us(problem, test_hardware()), 0);
      ThreadPool one(1), three(3);
      TestMatrix out = run_scans(c, in, steps, *kernel, {&one});
      EXPECT_LE(out.distance(expected), 1e-5);
      EXPECT_TRUE(out.same_bits(run_scans(c, in, steps, *kernel, {&three}))) << "threads";
      EXPECT_TRUE(out.same_bits(run_scans(c, in, single, *kernel, {&one}))) << "row by row";
    }
  }
}

}  // namespace
}  // namespace millrace
