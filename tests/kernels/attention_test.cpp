#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include "attention_cases.h"

namespace millrace {
namespace {

// Scores are sums of head_dim products: their rounding error grows with their size and enters the weights as it is.
// Kernels that are not exact round queries and weights to f16, or to bf16.
double tolerance(const AttentionCase& c, const AttentionKernel& kernel, bool exact) {
  const double largest_score = 4.0 * c.q_scale * c.k_scale;
  const double rounding = exact ? 5e-7 : kernel.name() == "flash_bf16" ? 0x1p-9 : 0x1p-12;
  return 4 * rounding * std::max(1.0, largest_score / 2);
}

class Runner {
 public:
  Runner(AttentionBatch& batch, int threads)
      : batch_(batch), pool_(threads), hardware_(test_hardware()), expected_(fresh()) {
    hardware_.threads = threads;
    reference_attention()->run(batch.args(expected_), {&pool_, nullptr});
  }

  bool can_run(const AttentionKernel& kernel) const { return kernel.can_run(batch_.problem(), hardware_); }
  bool is_exact(const AttentionKernel& kernel) const {
    AttentionProblem problem = batch_.problem();
    problem.precision = Precision::Exact;
    return kernel.can_run(problem, hardware_);
  }
  TestMatrix& expected() { return expected_; }

  TestMatrix run(const AttentionKernel& kernel, const float* phi = nullptr) {
    // The workspace is poisoned, and a guard stands behind it.
    const size_t bytes = kernel.workspace_bytes(batch_.problem(), hardware_);
    std::vector<std::byte> workspace(bytes + kGuard, std::byte{0xff});
    TestMatrix out = fresh();
    AttentionArgs args = batch_.args(out);
    args.phi = phi;
    kernel.run(args, {&pool_, workspace.data()});
    for (size_t i = bytes; i < workspace.size(); ++i)
      EXPECT_EQ(workspace[i], std::byte{0xff}) << "beyond the workspace";
    EXPECT_TRUE(out.spare_is_untouched());
    return out;
  }

 private:
  static constexpr size_t kGuard = 4096;
  TestMatrix fresh() const { return TestMatrix(batch_.rows(), batch_.width()); }
  AttentionBatch& batch_;
  ThreadPool pool_;
  Hardware hardware_;
  TestMatrix expected_;
};

TEST(Attention, EveryKernelMatchesTheReferenceOnEveryCase) {
  for (const AttentionCase& c : attention_cases()) {
    Random random;
    AttentionBatch batch(c, random);
    for (int threads : {1, 2, 3, 7}) {
      Runner runner(batch, threads);
      for (const AttentionKernel* kernel : cpu_attention_kernels()) {
        if (!runner.can_run(*kernel)) continue;
        SCOPED_TRACE(c.name + " " + std::string(kernel->name()) + " threads " + std::to_string(threads) + " seed " +
                     std::to_string(random.seed()));
        EXPECT_LT(runner.run(*kernel).distance(runner.expected()), tolerance(c, *kernel, runner.is_exact(*kernel)));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
