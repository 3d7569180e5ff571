// The router on the GPU against its scalar reference.
#include "kernels/router/router.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "cuda/gpu_routing.h"
#include "kernels/experts.h"
#include "kernels/kernel_set.h"

namespace millrace {
namespace {

struct RouterCase {
  RouterSettings settings;
  int64_t experts;
  bool bias = false, expert_scale = false, ties = false;
};

std::vector<RouterCase> router_cases() {
  std::vector<RouterCase> cases{
      {{.per_row = 8, .renormalize = true}, 128},
      {{.per_row = 2}, 8, false, true},
      {{.per_row = 4, .scale = 2.5f}, 60, true},
      {{.per_row = 8}, 128, false, false, true},
      {{.scoring = Scoring::Sigmoid, .per_row = 8, .renormalize = true, .sum_epsilon = 1e-20f, .scale = 2.5f},
       160,
       true},
      {{.scoring = Scoring::Sigmoid,
        .per_row = 8,
        .expert_groups = 8,
        .kept_groups = 4,
        .groups_by_two_best = true,
        .renormalize = true},
       256,
       true},
      {{.per_row = 6, .expert_groups = 8, .kept_groups = 3}, 64},
      {{.per_row = 3, .expert_groups = 4, .kept_groups = 2, .groups_by_two_best = true}, 20, false, false, true},
      {{.scoring = Scoring::SoftmaxOfChosen, .per_row = 4}, 32},
      {{.scoring = Scoring::SoftmaxOfChosen, .per_row = 4}, 33, true, true},
      {{.scoring = Scoring::SoftmaxOfChosen, .per_row = 8}, 128},
      {{.scoring = Scoring::SoftmaxOfChosen, .per_row = 12}, 18, false, false, true},  // 0 and -0 are equal
      {{.scoring = Scoring::SoftmaxOfChosen, .per_row = 40, .shared = 1}, 90, false, true, true},
      {{.scoring = Scoring::SparseMixer, .per_row = 2, .margin = 0.02f}, 16},
      {{.scoring = Scoring::SparseMixer, .per_row = 2, .margin = 0.5f}, 40},
      {{.per_row = 10, .renormalize = true, .least_sum = 0.9f}, 512},
      {{.scoring = Scoring::Sigmoid, .per_row = 10, .renormalize = true}, 512, true},
      {{.per_row = 7, .renormalize = true}, 7},  // all experts
      {{.per_row = 1}, 1},
      {{.per_row = 6, .scale = 2, .shared = 2}, 64, true, true},
      {{.per_row = 8, .renormalize = true, .shared = 1, .gates_shared = true}, 256},
      {{.scoring = Scoring::Sigmoid, .per_row = 10, .shared = 1}, 511},
  };
  return cases;
}

TEST(CudaRouter, AgreesWithTheReference) {
  for (const RouterCase& c : router_cases()) {
    for (const int64_t rows : {1, 2, 8, 9, 17, 33, 64, 65, 333, 2100, 9000}) {
      if (rows > 1000 && c.settings.scoring != Scoring::SoftmaxOfChosen) continue;  // the reference is too slow
      // The reference computes the softmax anew for each score.
      if (c.settings.scoring == Scoring::Softmax && rows > 1 &&
          rows * c.settings.per_row * c.experts * c.experts * c.experts > int64_t{2'000'000'000})
        continue;
      Random random(static_cast<uint32_t>(rows * 1000 + c.experts));
      TestMatrix logits(rows, c.experts + c.settings.gates_shared, random, 2);
      for (int64_t r = 0; r < rows && c.ties; ++r) {
        for (int64_t e = 0; e < c.experts; ++e) logits.at(r, e) = std::round(logits.at(r, e));
      }
      std::vector<float> bias, scale;
      for (int64_t e = 0; e < c.experts; ++e) {
        bias.push_back(random.normal(0.3f));
        scale.push_back(1 + random.normal(0.1f));
      }
      const int64_t groups = c.experts + c.settings.shared, per_row = c.settings.pairs_of_row();
      TestRouting expected(rows, groups, per_row), first(rows, groups, per_row), second(rows, groups, per_row);
      ThreadPool pool(8);
      RouterOp::reference()->run({c.settings, logits.view(), c.bias ? bias.data() : nullptr,
                                  c.expert_scale ? scale.data() : nullptr, expected.view()},
                                 {&pool, nullptr});
      const RouterOp::Problem problem{c.settings, c.experts, rows};
      int ran = 0;
      for (const auto* kernel : cuda_kernels().of<RouterOp>()) {
        if (!kernel->can_run(problem, gpu().hardware())) continue;
        SCOPED_TRACE(to_string(problem) + " with " + std::string(kernel->name()));
        EXPECT_GT(kernel->estimate_us(problem, gpu().hardware()), 0);
        const GpuCopy gpu_logits(logits);
        const GpuBytes gpu_bias(bias), gpu_scale(scale);
        const GpuBytes workspace(
            std::vector<std::byte>(kernel->workspace_bytes(problem, gpu().hardware()), std::byte{0xff}));
        for (TestRouting* out : {&first, &second}) {
          const GpuRouting routing(out->view());  // poisoned
          kernel->run({c.settings, gpu_logits.view(), c.bias ? gpu_bias.as<float>() : nullptr,
                       c.expert_scale ? gpu_scale.as<float>() : nullptr, routing.view()},
                      on_gpu(workspace.data()));
          routing.read(out->view());
        }
        const Routing want = expected.view(), got = first.view(), again = second.view();
        const auto pairs = static_cast<size_t>(want.pairs());
        for (size_t i = 0; i < pairs; ++i) {
          ASSERT_EQ(got.chosen[i], want.chosen[i]) << "pair " << i;
          ASSERT_NEAR(got.weights[i], want.weights[i], 2e-6 + 2e-5 * std::abs(want.weights[i])) << "pair " << i;
          ASSERT_EQ(got.order[i], want.order[i]) << "position " << i;
        }
        for (int64_t g = 0; g <= want.groups; ++g) ASSERT_EQ(got.offsets[g], want.offsets[g]) << "expert " << g;
        EXPECT_EQ(std::memcmp(got.weights, again.weights, pairs * 4), 0);
        EXPECT_EQ(std::memcmp(got.order, again.order, pairs * 4), 0);
        ++ran;
      }
      EXPECT_GT(ran, 0);
    }
  }
}

// NaN must not lead to an expert that does not exist: its index becomes an address.
TEST(CudaRouter, NotANumberChoosesDistinctExperts) {
  for (const Scoring scoring : {Scoring::Softmax, Scoring::Sigmoid, Scoring::SoftmaxOfChosen, Scoring::SparseMixer}) {
    for (const int64_t rows : {3, 100}) {
      TestMatrix logits(rows, 24);
      for (int64_t e = 0; e < 5; ++e) logits.at(1, e) = static_cast<float>(e);
      TestRouting out(rows, 24, 8);
      const GpuCopy gpu_logits(logits);
      const GpuRouting routing(out.view());
      const RouterSettings settings{.scoring = scoring, .per_row = 8};
      const auto* kernel = cuda_kernels().of<RouterOp>().front();
      const GpuBytes workspace(kernel->workspace_bytes({settings, 24, rows}, gpu().hardware()));
      kernel->run({settings, gpu_logits.view(), nullptr, nullptr, routing.view()}, on_gpu(workspace.data()));
      routing.read(out.view());
      const Routing r = out.view();
      for (int64_t row = 0; row < rows; ++row) {
        std::vector<int32_t> chosen(r.chosen + row * 8, r.chosen + (row + 1) * 8);
        std::sort(chosen.begin(), chosen.end());
        EXPECT_EQ(std::unique(chosen.begin(), chosen.end()), chosen.end());
        EXPECT_GE(chosen.front(), 0);
        EXPECT_LT(chosen.back(), 24);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
