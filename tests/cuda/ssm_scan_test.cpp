// The selective scan on a GPU against the quadratic form over whole sequences, over the CPU's cases.
#include "kernels/ssm_scan_cases.h"

#include "cuda/gpu_slices.h"

namespace millrace {
namespace {

constexpr int kSequences = 2;

void check_scan(const Kernel<SsmScanOp>& kernel, const ScanCase& c, DType dtype, int most_rows) {
  Random random;
  const SsmScanOp::Problem problem{c.shape, kSequences * c.length, dtype};
  if (!kernel.can_run(problem, gpu().hardware())) return;
  SCOPED_TRACE(to_string(problem) + " " + std::string(kernel.name()) + " seed " + std::to_string(random.seed()));
  EXPECT_GT(kernel.estimate_us(problem, gpu().hardware()), 0);
  ScanInputs in(c, kSequences, random);
  for (TestMatrix* m : {&in.x, &in.b, &in.c, &in.dt}) round_to(*m, dtype);
  TestMatrix expected = scanned(c, kSequences, in), out(kSequences * c.length, c.shape.inner());
  const size_t stride = static_cast<size_t>(c.shape.state_elements()) * sizeof(float) + 64;
  const GpuBytes state(std::vector<std::byte>((kSequences + 1) * stride));
  const GpuBytes workspace(std::vector<std::byte>(kernel.workspace_bytes(problem, gpu().hardware()), std::byte{0xff}));
  const GpuBytes dt_bias(in.dt_bias), a(in.a), d(in.d);
  for (const auto& slices : random_steps(kSequences, c.length, most_rows, random)) {
    const int64_t rows = rows_of(slices);
    TestMatrix x(rows, c.shape.inner()), b(rows, c.shape.group_cols()), cc(rows, c.shape.group_cols());
    TestMatrix dt(rows, c.shape.heads), got(rows, c.shape.inner());
    take_rows(slices, kSequences, c.length, in.x, x);
    take_rows(slices, kSequences, c.length, in.b, b);
    take_rows(slices, kSequences, c.length, in.c, cc);
    take_rows(slices, kSequences, c.length, in.dt, dt);
    const GpuSlices tables(slices);
    const GpuCopy gpu_x(x, dtype), gpu_b(b, dtype), gpu_c(cc, dtype), gpu_dt(dt, dtype), gpu_out(got);
    kernel.run({.shape = c.shape,
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
                .tables = tables.tables()},
               on_gpu(workspace.data()));
    gpu_out.read(got);
    EXPECT_TRUE(got.spare_is_untouched());
    take_rows(slices, kSequences, c.length, out, got, /*back=*/true);
  }
  EXPECT_LE(out.distance(expected), 1e-5);
}

TEST(CudaSsmScan, PiecesContinueTheirSequences) {
  for (const auto* kernel : SsmScanOp::cuda()) {
    for (const ScanCase& c : scan_cases()) {
      for (const DType dtype : kPlainTypes) {
        check_scan(*kernel, c, dtype, 19);
        check_scan(*kernel, c, dtype, 8 * c.length);  // nearly all slices are whole prompts
      }
    }
  }
}

}  // namespace
}  // namespace millrace
