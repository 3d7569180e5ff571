// The router and the grouped linear layer: scalar references against plain loops.
#include "experts.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

struct GroupedCase {
  DType format;
  int64_t rows, groups, per_row;
  Spread spread;
  bool gated, sum, bias;
  Activation activation = Activation::Silu;
};

double weight(const TestExperts& experts, int64_t group, int64_t row, TestMatrix& x, int64_t at,
              std::vector<float>& scratch) {
  const WeightView view = experts.file_view(group);
  scratch.resize(static_cast<size_t>(view.cols));
  dequantize_row(view.dtype, view.row(row), scratch.data(), view.cols);
  return sum_of(view.cols, [&](int64_t i) { return double(scratch[static_cast<size_t>(i)]) * x.at(at, i); });
}

constexpr SwigluClamp kClamp{3, 1.5f};  // products exceed the limit on both sides

double gated(Activation kind, double gate, double up) {
  if (kind == Activation::Silu) return gate / (1 + std::exp(-gate)) * up;
  gate = std::min(gate, double{kClamp.limit});
  up = std::clamp(up, -double{kClamp.limit}, double{kClamp.limit});
  return (up + 1) * gate / (1 + std::exp(-kClamp.slope * gate));
}

TEST(GroupedLinear, ReferenceEqualsPlainLoops) {
  const GroupedCase cases[] = {
      {DType::F32, 5, 6, 2, Spread::Even, false, false, false},
      {DType::BF16, 1, 4, 4, Spread::Even, true, false, true},  // all experts of one token
      {DType::Q8_0, 7, 9, 3, Spread::OneExpert, true, false, false},
      {DType::Q4_K, 6, 5, 2, Spread::FewExperts, false, true, true},
      {DType::F16, 9, 8, 1, Spread::Even, false, true, false},
      {DType::BF16, 5, 4, 2, Spread::Even, true, false, true, Activation::ClampedSwiglu},
  };
  for (const GroupedCase& c : cases) {
    Random random;
    SCOPED_TRACE("MILLRACE_TEST_SEED=" + std::to_string(random.seed()));
    const int64_t n = 8, k = 256, pairs = c.rows * c.per_row;
    const TestExperts experts(c.format, c.groups, n, k, random);
    TestRouting routed(c.rows, c.groups, c.per_row, c.spread, random);
    const Routing routing = routed.view();
    TestMatrix bias(c.groups, n, random), x(c.sum ? pairs : c.rows, k, random);
    TestMatrix y(c.sum ? c.rows : pairs, c.gated ? n / 2 : n, random);
    TestMatrix before = y;
    std::vector<float> biases;
    for (int64_t g = 0; g < c.groups; ++g) {
      for (int64_t i = 0; i < n; ++i) biases.push_back(bias.at(g, i));
    }
    const GroupedWeights weights = experts.file_rows();
    ThreadPool pool(2);
    GroupedLinearOp::reference()->run({.x = x.view(),
                                       .weights = &weights,
                                       .bias = c.bias ? biases.data() : nullptr,
                                       .routing = routing,
                                       .gated = c.gated,
                                       .activation = c.activation,
                                       .clamp = kClamp,
                                       .sum = c.sum,
                                       .y = y.view()},
                                      {&pool, nullptr});
    EXPECT_TRUE(y.spare_is_untouched());
    std::vector<float> scratch;
    const auto product = [&](int64_t pair, int64_t i) {
      const int64_t group = routing.chosen[pair];
      return weight(experts, group, i, x, c.sum ? pair : pair / c.per_row, scratch) + (c.bias ? bias.at(group, i) : 0);
    };
    const double tolerance = 1e-5 * std::sqrt(double(k)) * std::sqrt(double(c.per_row));
    for (int64_t i = 0; i < (c.gated ? n / 2 : n); ++i) {
      for (int64_t pair = 0; pair < pairs && !c.sum; ++pair) {
        const double gate = product(pair, i);
        const double expected = c.gated ? gated(c.activation, gate, product(pair, n / 2 + i)) : gate;
        EXPECT_NEAR(y.at(pair, i), expected, tolerance * std::max(1.0, std::abs(expected)));
      }
      for (int64_t row = 0; row < c.rows && c.sum; ++row) {
        double expected = before.at(row, i);
        for (int64_t j = 0; j < c.per_row; ++j)
          expected += routing.weights[row * c.per_row + j] * product(row * c.per_row + j, i);
        EXPECT_NEAR(y.at(row, i), expected, tolerance * std::max(1.0, std::abs(expected)));
      }
    }
  }
}

TEST(Router, PairsAreSortedByGroup) {
  Random random;
  for (const Spread spread : {Spread::Even, Spread::OneExpert, Spread::FewExperts}) {
    TestRouting routed(13, 7, 3, spread, random);
    const Routing r = routed.view();
    EXPECT_EQ(r.offsets[0], 0);
    EXPECT_EQ(r.offsets[7], 39);
    for (int32_t g = 0; g < 7; ++g) {
      for (int32_t i = r.offsets[g]; i < r.offsets[g + 1]; ++i) {
        EXPECT_EQ(r.chosen[r.order[i]], g);
        if (i > r.offsets[g]) {
          EXPECT_LT(r.order[i - 1], r.order[i]);
        }
      }
    }
  }
}

Routing route(const RouterSettings& settings, std::vector<float> logits, TestRouting& out, const float* bias = nullptr,
              const float* expert_scale = nullptr) {
  const auto experts = static_cast<int64_t>(logits.size());
  RouterOp::reference()->run({.settings = settings,
                              .logits = {DType::F32, 1, experts, experts, reinterpret_cast<std::byte*>(logits.data())},
                              .choice_bias = bias,
                              .expert_scale = expert_scale,
                              .routing = out.view()},
                             {});
  return out.view();
}

TEST(Router, ScoringsWeighTheirChoices) {
  const std::vector<float> logits{0, std::log(2.0f), std::log(5.0f), std::log(2.0f)};
  TestRouting out(1, 4, 2);
  Routing r = route({.scoring = Scoring::Softmax, .per_row = 2}, logits, out);
  EXPECT_EQ(r.chosen[0], 2);
  EXPECT_EQ(r.chosen[1], 1) << "of equal scores the lower index";
  EXPECT_NEAR(r.weights[0], 0.5, 1e-6);
  EXPECT_NEAR(r.weights[1], 0.2, 1e-6);
  r = route({.scoring = Scoring::Softmax, .per_row = 2, .renormalize = true, .scale = 3}, logits, out);
  EXPECT_NEAR(r.weights[0], 3 * 5 / 7.0, 1e-6);
  r = route({.scoring = Scoring::Softmax, .per_row = 2, .renormalize = true, .least_sum = 10}, logits, out);
  EXPECT_NEAR(r.weights[0], 0.05, 1e-6);
  r = route({.scoring = Scoring::SoftmaxOfChosen, .per_row = 2}, logits, out);
  EXPECT_NEAR(r.weights[1], 2 / 7.0, 1e-6);
  const float bias[] = {9, 0, 0, 0}, twice[] = {2, 1, 1, 1};
  r = route({.scoring = Scoring::Sigmoid, .per_row = 2}, logits, out, bias, twice);
  EXPECT_EQ(r.chosen[0], 0);
  EXPECT_NEAR(r.weights[0], 2 * 0.5, 1e-6) << "the bias moves the choice, not the weight";
  EXPECT_NEAR(r.weights[1], 5 / 6.0, 1e-6);
}

TEST(Router, GroupsLimitTheChoice) {
  TestRouting out(1, 6, 2);
  const std::vector<float> logits{3, 0, 2, 2, 1, 1};
  RouterSettings settings{.scoring = Scoring::Softmax, .per_row = 2, .expert_groups = 3, .kept_groups = 1};
  Routing r = route(settings, logits, out);
  EXPECT_EQ(r.chosen[0], 0);
  EXPECT_EQ(r.chosen[1], 1) << "by the best expert";
  settings.groups_by_two_best = true;
  settings.scoring = Scoring::SoftmaxOfChosen;
  r = route(settings, logits, out);
  EXPECT_EQ(r.chosen[0], 2);
  EXPECT_EQ(r.chosen[1], 3) << "by the sum of the two best";
}

TEST(Router, EveryRowHasTheSharedExperts) {
  const std::vector<float> logits{0, 3, 1, 2, std::log(3.0f)};  // of four experts, and the gate of the shared ones
  TestRouting out(1, 6, 4);
  const Routing r = route(
      {.scoring = Scoring::SoftmaxOfChosen, .per_row = 2, .scale = 7, .shared = 2, .gates_shared = true}, logits, out);
  const std::vector<int32_t> expected{1, 3, 4, 5};
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), r.chosen));
  EXPECT_NEAR(r.weights[0] + r.weights[1], 7, 1e-5);
  EXPECT_NEAR(r.weights[2], 0.75, 1e-6);
  EXPECT_NEAR(r.weights[3], 0.75, 1e-6);
  EXPECT_EQ(r.offsets[6], 4);
}

TEST(Router, SparseMixerWeighsExpertsWithinTheMargin) {
  TestRouting out(1, 4, 2);
  const Routing r = route({.scoring = Scoring::SparseMixer, .per_row = 2, .margin = 0.02f}, {10, 9.9f, 5, -3}, out);
  EXPECT_EQ(r.chosen[0], 0);
  EXPECT_EQ(r.chosen[1], 1);
  EXPECT_NEAR(r.weights[0], 1 / (1 + std::exp(-0.1)), 1e-5);
  EXPECT_NEAR(r.weights[1], 1, 1e-5);
}

struct RouterCase {
  RouterSettings settings;
  int64_t experts, rows;
  bool biased, ties;  // ties: logits are small integers
};

TEST(Router, KernelsEqualTheReference) {
  const RouterCase cases[] = {
      {{.scoring = Scoring::Softmax, .per_row = 8}, 64, 100, false, false},
      {{.scoring = Scoring::Softmax, .per_row = 4, .renormalize = true}, 60, 7, false, true},
      {{.scoring = Scoring::Softmax, .per_row = 5}, 5, 3, false, true},
      {{.scoring = Scoring::Softmax, .per_row = 1}, 1, 2, false, false},
      {{.scoring = Scoring::SoftmaxOfChosen, .per_row = 4}, 32, 9, false, true},
      {{.scoring = Scoring::Sigmoid, .per_row = 8, .renormalize = true, .sum_epsilon = 1e-20f, .scale = 2.5f},
       128,
       5,
       true,
       false},
      {{.scoring = Scoring::Sigmoid,
        .per_row = 6,
        .expert_groups = 8,
        .kept_groups = 3,
        .groups_by_two_best = true,
        .renormalize = true},
       64,
       40,
       true,
       true},
      {{.scoring = Scoring::Softmax, .per_row = 2, .expert_groups = 4, .kept_groups = 2}, 16, 40, false, true},
      {{.scoring = Scoring::SparseMixer, .per_row = 2, .margin = 0.02f}, 16, 50, false, true},
      {{.scoring = Scoring::Softmax, .per_row = 4, .scale = 3, .shared = 2}, 16, 9, true, false},
      {{.scoring = Scoring::Sigmoid, .per_row = 3, .renormalize = true, .shared = 1, .gates_shared = true},
       20,
       9,
       false,
       false},
  };
  Random random;
  SCOPED_TRACE("MILLRACE_TEST_SEED=" + std::to_string(random.seed()));
  ThreadPool pool(2);
  for (const RouterCase& c : cases) {
    SCOPED_TRACE(to_string(RouterOp::Problem{c.settings, c.experts, c.rows}));
    TestMatrix logits(c.rows, c.experts + c.settings.gates_shared, random, 3);
    std::vector<float> bias, scale;
    for (int64_t e = 0; e < c.experts; ++e) {
      for (int64_t row = 0; row < c.rows && c.ties; ++row) logits.at(row, e) = std::round(logits.at(row, e));
      bias.push_back(c.ties ? 0.25f * static_cast<float>(random.below(3)) : random.normal());
      scale.push_back(random.normal());
    }
    const auto routed_by = [&](const Kernel<RouterOp>& kernel) {
      TestRouting out(c.rows, c.experts + c.settings.shared, c.settings.pairs_of_row());
      kernel.run({.settings = c.settings,
                  .logits = logits.view(),
                  .choice_bias = c.biased ? bias.data() : nullptr,
                  .expert_scale = c.biased ? scale.data() : nullptr,
                  .routing = out.view()},
                 {&pool});
      return out;
    };
    TestRouting expected = routed_by(*RouterOp::reference());
    const Routing e = expected.view();
    for (const auto* kernel : RouterOp::cpu()) {
      if (c.settings.scoring == Scoring::SparseMixer && kernel != RouterOp::reference()) continue;
      ASSERT_TRUE(kernel->can_run({c.settings, c.experts, c.rows}, test_hardware()));
      TestRouting found = routed_by(*kernel);
      const Routing r = found.view();
      EXPECT_TRUE(std::equal(r.chosen, r.chosen + r.pairs(), e.chosen)) << kernel->name();
      EXPECT_TRUE(std::equal(r.weights, r.weights + r.pairs(), e.weights)) << kernel->name();
      EXPECT_TRUE(std::equal(r.order, r.order + r.pairs(), e.order)) << kernel->name();
      EXPECT_TRUE(std::equal(r.offsets, r.offsets + r.groups + 1, e.offsets)) << kernel->name();
    }
  }
}

}  // namespace
}  // namespace millrace
