// The selective scan on a GPU against the quadratic form over whole sequences, over the CPU's cases.
#include "kernels/ssm_scan_cases.h"

#include "cuda/support.h"
#include "kernels/kernel_set.h"

namespace millrace {
namespace {

constexpr int kSequences = 2;

TEST(CudaSsmScan, PiecesContinueTheirSequences) {
  for (const ScanCase& c : scan_cases()) {
    Random random;
    ScanInputs in(c, kSequences, random);
    TestMatrix expected = scanned(c, kSequences, in), out(kSequences * c.length, c.shape.inner());
    const size_t stride = static_cast<size_t>(c.shape.state_elements()) * sizeof(float) + 64;
    const GpuBytes state(std::vector<std::byte>((kSequences + 1) * stride));
    const GpuBytes dt_bias(in.dt_bias), a(in.a), d(in.d);
    const SsmScanOp::Problem problem{c.shape, c.length};
    const auto kernels = cuda_kernels().of<SsmScanOp>();
    ASSERT_TRUE(!kernels.empty() && kernels[0]->can_run(problem, gpu().hardware()));
    SCOPED_TRACE(to_string(problem) + " seed " + std::to_string(random.seed()));
    for (const auto& slices : random_steps(kSequences, c.length, 19, random)) {
      const int64_t rows = rows_of(slices);
      TestMatrix x(rows, c.shape.inner()), b(rows, c.shape.group_cols()), cc(rows, c.shape.group_cols());
      TestMatrix dt(rows, c.shape.heads), got(rows, c.shape.inner());
      take_rows(slices, kSequences, c.length, in.x, x);
      take_rows(slices, kSequences, c.length, in.b, b);
      take_rows(slices, kSequences, c.length, in.c, cc);
      take_rows(slices, kSequences, c.length, in.dt, dt);
      std::vector<SliceTables::Slice> table;
      std::vector<int32_t> slots;
      int32_t longest = 0;
      for (const SequenceSlice& s : slices) {
        table.push_back({s.first_row, s.rows, s.past, s.past + s.rows});
        slots.push_back(s.slot);
        longest = std::max(longest, s.rows);
      }
      const GpuBytes gpu_table(table), gpu_slots(slots);
      const GpuCopy gpu_x(x), gpu_b(b), gpu_c(cc), gpu_dt(dt), gpu_out(got);
      kernels[0]->run({.shape = c.shape,
                       .x = gpu_x.view(),
                       .b = gpu_b.view(),
                       .c = gpu_c.view(),
                       .dt = gpu_dt.view(),
                       .out = gpu_out.view(),
                       .dt_bias = dt_bias.as<float>(),
                       .a = a.as<float>(),
                       .d = d.as<float>(),
                       .least_step = c.least_step,
                       .most_step = c.most_step,
                       .state = state.data(),
                       .stride = stride,
                       .sequences = slices,
                       .tables = {.slices = gpu_table.as<SliceTables::Slice>(),
                                  .longest_slice = longest,
                                  .slots = gpu_slots.as<int32_t>()}},
                      on_gpu());
      gpu_out.read(got);
      EXPECT_TRUE(got.spare_is_untouched());
      take_rows(slices, kSequences, c.length, out, got, /*back=*/true);
    }
    EXPECT_LE(out.distance(expected), 1e-5);
  }
}

}  // namespace
}  // namespace millrace
