// Materialised latent attention against plain loops in double.
#include "kernels/latent_prompt/latent_prompt.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "kernels/latent_prompt/head_matrix.h"
#include "latent_prompt_cases.h"

namespace millrace {
namespace {

// Whether some linear kernel reads such matrices, as for every layout that is chosen.
bool is_read(const LinearLayout& layout, DType format, int64_t n, int64_t k, const Hardware& hardware) {
  if (!layout.accepts(format, n, k, hardware)) return false;
  if (layout.in_place(format, n, k)) return true;
  const LinearProblem problem{format, layout.name(), Precision::Fast, n, k, 1, DType::F32, false};
  return !ExpertChoice(problem, hardware, nullptr).candidates().empty();
}

TEST(LatentPrompt, MatchesPlainLoops) {
  for (const PromptCase& c : prompt_cases()) {
    Random random;
    PromptBatch batch(c, random);
    TestMatrix expected = batch.expected();
    for (const Hardware& level : hardware_levels()) {
      for (const int threads : {1, 5}) {  // five: some heads are cut into blocks of rows
        ThreadPool pool(threads);
        Hardware hardware = level;
        hardware.threads = threads;
        for (const LinearLayout* layout : cpu_kernels().layouts) {
          if (!is_read(*layout, c.weights, c.latent, c.plain, hardware)) continue;
          for (const auto* kernel : LatentPromptOp::cpu()) {
            if (LatentPromptOp::is_absorbed(*kernel) || !kernel->can_run(batch.problem(), hardware)) continue;
            SCOPED_TRACE(c.name + " " + std::string(kernel->name()) + " " + std::string(layout->name()) + " seed " +
                         std::to_string(random.seed()));
            // Scores are sums of products of weights that are not small, and the softmax multiplies their errors.
            EXPECT_LT(batch.run(*kernel, *layout, hardware, pool).distance(expected), 2e-4);
          }
        }
      }
    }
  }
}

TEST(LatentPrompt, RowsDoNotDependOnTheNumberOfThreads) {
  Random random;
  PromptBatch batch(prompt_cases()[10], random);
  const auto& kernel = first_that_runs(LatentPromptOp::cpu(), batch.problem(), test_hardware());
  if (LatentPromptOp::is_absorbed(kernel)) GTEST_SKIP() << "no kernel for this machine";
  const auto run = [&](int threads) {
    ThreadPool pool(threads);
    Hardware hardware = test_hardware();
    hardware.threads = threads;
    return batch.run(kernel, *cpu_kernels().layouts.back(), hardware, pool);
  };
  const TestMatrix one = run(1);
  EXPECT_TRUE(run(7).same_bits(one)) << "seed " << random.seed();
}

// With the sizes of DeepSeek V2 Lite. Exact precision leaves out attention kernels with matrix instructions.
TEST(LatentPrompt, EstimatesPreferItForLongChunksOnly) {
  Hardware hardware = test_hardware();
  hardware.threads = 2;
  hardware.ceilings.f32_gflops = 100;
  hardware.ceilings.read_gbs = 20;
  hardware.ceilings.region_us = 3;
  const auto prefers = [&](int64_t rows, int64_t context) {
    const LatentPromptOp::Problem p{DType::F16, Precision::Exact, 16, 128, 64, 128, 512, 64, rows, context};
    double least = std::numeric_limits<double>::infinity();
    for (const auto* kernel : LatentPromptOp::cpu()) {
      if (!LatentPromptOp::is_absorbed(*kernel) && kernel->can_run(p, hardware))
        least = std::min(least, kernel->estimate_us(p, hardware));
    }
    return least < LatentPromptOp::cpu().back()->estimate_us(p, hardware);
  };
  const auto any = LatentPromptOp::cpu().front();
  if (!any->can_run({DType::F16, Precision::Exact, 1, 8, 8, 8, 8, 16, 8, 8}, hardware)) GTEST_SKIP();
  for (const int64_t context : {512, 4096, 65536}) {
    EXPECT_TRUE(prefers(512, context)) << context;
    EXPECT_FALSE(prefers(2, context)) << context;
    EXPECT_FALSE(prefers(32, context)) << context;
  }
}

// Matrices as f32, from every layout.
TEST(HeadMatrix, EqualsTheFileRows) {
  ThreadPool pool(1);
  for (const DType format : {DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q5_1, DType::Q3_K,
                             DType::Q6_K, DType::IQ4_XS, DType::MXFP4}) {
    const int64_t block = info(format).block, n = 21, k = std::max<int64_t>(96, block);
    Random random;
    TestExperts experts(format, 2, n, k, random);
    for (const Hardware& hardware : hardware_levels()) {
      for (const LinearLayout* layout : cpu_kernels().layouts) {
        if (!is_read(*layout, format, n, k, hardware)) continue;
        const GroupedWeights weights = experts.packed(*layout, pool);
        std::vector<std::byte> memory(HeadMatrix::bytes(n, k) + 64);
        auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
        for (const bool transposed : {false, true}) {
          TestMatrix got(transposed ? k : n, transposed ? n : k), expected = got;
          for (int64_t i = 0; i < n; ++i) {
            std::vector<float> row(static_cast<size_t>(k));
            dequantize_row(format, experts.file_view(1).row(i), row.data(), k);
            for (int64_t j = 0; j < k; ++j)
              expected.at(transposed ? j : i, transposed ? i : j) = row[static_cast<size_t>(j)];
          }
          const Matrix to = got.view();
          HeadMatrix(weights, hardware).read(1, transposed, to.row<float>(0), to.stride, aligned);
          EXPECT_LT(got.distance(expected), 1e-6)
              << name(format) << " " << layout->name() << " transposed " << transposed << " seed " << random.seed();
          EXPECT_TRUE(got.spare_is_untouched());
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
