// Ops of recurrent state: every kernel on sequences that come in pieces, against plain loops over whole sequences.
#include "base/thread_pool.h"
#include "state_op_cases.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr int kSequences = 2;

// Runs `body` for every kernel that can, on one and on three threads.
template <class Op, class Body>
void for_each_kernel(const typename Op::Problem& problem, uint32_t seed, Body body) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const Kernel<Op>* kernel : Op::cpu()) {
      if (!kernel->can_run(problem, test_hardware())) continue;
      SCOPED_TRACE(to_string(problem) + " " + std::string(kernel->name()) + " threads " + std::to_string(threads) +
                   " seed " + std::to_string(seed));
      EXPECT_GT(kernel->estimate_us(problem, test_hardware()), 0);
      std::vector<std::byte> workspace(kernel->workspace_bytes(problem, test_hardware()));
      body(*kernel, Executor{&pool, workspace.data()});
    }
  }
}

// The convolution of whole sequences, in plain loops.
TestMatrix convolved(const ConvCase& c, TestMatrix& x, const std::vector<float>& weight,
                     const std::vector<float>& bias) {
  TestMatrix out(kSequences * c.length, c.channels);
  for (int64_t row = 0; row < kSequences * c.length; ++row) {
    for (int64_t i = 0; i < c.channels; ++i) {
      double sum = c.bias ? bias[static_cast<size_t>(i)] : 0;
      for (int64_t j = 0; j < c.taps; ++j) {
        const int64_t back = c.taps - 1 - j;
        if (back <= row % c.length) sum += double(weight[static_cast<size_t>(i * c.taps + j)]) * x.at(row - back, i);
      }
      out.at(row, i) = static_cast<float>(c.silu ? sum / (1 + std::exp(-sum)) : sum);
    }
  }
  return out;
}

TEST(Pool, GivesOneRowForEachSequence) {
  Random random;
  TestMatrix x(12, 5, random), out(3, 5);
  const std::vector<SequenceSlice> slices{
      {.first_row = 0, .rows = 4}, {.first_row = 4, .rows = 1}, {.first_row = 5, .rows = 7}};
  for (const PoolKind kind : {PoolKind::First, PoolKind::Mean, PoolKind::Last}) {
    for_each_kernel<PoolOp>({kind, 12, 5}, random.seed(), [&](const auto& kernel, const Executor& executor) {
      kernel.run({kind, x.view(), out.view(), slices, {}}, executor);
      for (int64_t s = 0; s < 3; ++s) {
        const SequenceSlice& slice = slices[static_cast<size_t>(s)];
        for (int64_t i = 0; i < 5; ++i) {
          double sum = 0;
          for (int32_t row = 0; row < slice.rows; ++row) sum += x.at(slice.first_row + row, i);
          const double expected = kind == PoolKind::First  ? x.at(slice.first_row, i)
                                  : kind == PoolKind::Last ? x.at(slice.first_row + slice.rows - 1, i)
                                                           : sum / slice.rows;
          EXPECT_NEAR(out.at(s, i), expected, 1e-5);
        }
      }
    });
  }
}

TEST(CausalConv, PiecesContinueTheirSequences) {
  for (const ConvCase& c : conv_cases()) {
    Random random;
    TestMatrix x(kSequences * c.length, c.channels, random);
    std::vector<float> weight(static_cast<size_t>(c.channels * c.taps)), bias(static_cast<size_t>(c.channels));
    for (float& w : weight) w = random.normal();
    for (float& b : bias) b = random.normal();
    TestMatrix expected = convolved(c, x, weight, bias);
    const auto steps = random_steps(kSequences, c.length, std::max(6, c.length), random);
    const size_t stride = static_cast<size_t>(c.taps * c.channels) * sizeof(float) + 64;
    for_each_kernel<CausalConvOp>({c.length, c.channels, c.taps}, random.seed(),
                                  [&](const auto& kernel, const Executor& executor) {
                                    TestMatrix out(kSequences * c.length, c.channels);
                                    std::vector<std::byte> state((kSequences + 1) * stride);
                                    for (const auto& slices : steps) {
                                      TestMatrix piece(rows_of(slices), c.channels), got(rows_of(slices), c.channels);
                                      take_rows(slices, kSequences, c.length, x, piece);
                                      kernel.run({.x = piece.view(),
                                                  .out = got.view(),
                                                  .weight = weight.data(),
                                                  .taps = c.taps,
                                                  .state = state.data(),
                                                  .stride = stride,
                                                  .sequences = slices,
                                                  .bias = c.bias ? bias.data() : nullptr,
                                                  .silu = c.silu},
                                                 executor);
                                      EXPECT_TRUE(got.spare_is_untouched());
                                      take_rows(slices, kSequences, c.length, out, got, /*back=*/true);
                                    }
                                    EXPECT_LE(out.distance(expected), 1e-6);
                                  });
  }
}

using Steps = std::vector<std::vector<SequenceSlice>>;

// The outputs of whole sequences and the final states, computed in `steps`.
struct DeltaResult {
  TestMatrix out;
  std::vector<std::byte> state;
};
DeltaResult run_delta(const Kernel<DeltaRuleOp>& kernel, const Executor& executor, const DeltaCase& c, DeltaInputs& in,
                      const Steps& steps) {
  const DeltaRuleShape& s = c.shape;
  const size_t stride = static_cast<size_t>(s.state_elements()) * sizeof(float) + 64;
  DeltaResult result{{kSequences * c.length, s.value_width()}, std::vector<std::byte>((kSequences + 1) * stride)};
  for (const auto& slices : steps) {
    const int64_t rows = rows_of(slices);
    const auto piece = [&](TestMatrix& all) {
      TestMatrix of_step(rows, all.view().cols);
      take_rows(slices, kSequences, c.length, all, of_step);
      return of_step;
    };
    TestMatrix q = piece(in.q), k = piece(in.k), v = piece(in.v), a = piece(in.a), b = piece(in.b);
    TestMatrix gate = piece(in.gate);
    TestMatrix out(rows, s.value_width());
    kernel.run({.shape = s,
                .q = q.view(),
                .k = k.view(),
                .v = v.view(),
                .a = a.view(),
                .b = b.view(),
                .decay = in.decay.data(),
                .dt_bias = in.dt_bias.data(),
                .out = out.view(),
                .norm = c.normed ? in.norm.data() : nullptr,
                .epsilon = DeltaInputs::kEpsilon,
                .gate = gate.view(),
                .state = result.state.data(),
                .stride = stride,
                .sequences = slices},
               executor);
    EXPECT_TRUE(out.spare_is_untouched());
    take_rows(slices, kSequences, c.length, result.out, out, /*back=*/true);
  }
  return result;
}

// out = norm(rule) * silu(gate), written as two steps.
TEST(DeltaRule, NormsAndGatesItsResult) {
  Random random;
  DeltaCase c{{1, 2, 16, 12}, 3};
  DeltaInputs in(c.shape, kSequences * c.length, random);
  const Steps steps = random_steps(kSequences, c.length, 1, random);
  DeltaResult plain = run_delta(*DeltaRuleOp::reference(), {}, c, in, steps);
  c.normed = true;
  DeltaResult normed = run_delta(*DeltaRuleOp::reference(), {}, c, in, steps);
  for (int64_t row = 0; row < kSequences * c.length; ++row) {
    for (int64_t h = 0; h < 2; ++h) {
      double squares = 0;
      for (int64_t i = 0; i < 12; ++i) squares += std::pow(plain.out.at(row, h * 12 + i), 2);
      for (int64_t i = 0; i < 12; ++i) {
        const double gate = in.gate.at(row, h * 12 + i), weight = in.norm[static_cast<size_t>(i)];
        const double expected = plain.out.at(row, h * 12 + i) / std::sqrt(squares / 12 + DeltaInputs::kEpsilon) *
                                weight * gate / (1 + std::exp(-gate));
        EXPECT_NEAR(normed.out.at(row, h * 12 + i), expected, 1e-5);
      }
    }
  }
  EXPECT_EQ(normed.state, plain.state);
}

// Every kernel agrees with the reference, and its bits depend neither on the steps nor on the threads.
TEST(DeltaRule, MatchesTheReference) {
  std::vector<DeltaCase> cases = delta_cases();
  for (size_t i = 0; i < cases.size(); i += 2) cases[i].normed = true;
  for (const DeltaCase& c : cases) {
    Random random;
    DeltaInputs in(c.shape, kSequences * c.length, random, c.decay);
    DeltaResult expected =
        run_delta(*DeltaRuleOp::reference(), {}, c, in, random_steps(kSequences, c.length, 1, random));
    ThreadPool one(1);
    for_each_kernel<DeltaRuleOp>({c.shape, c.length}, random.seed(), [&](const auto& kernel, const Executor& executor) {
      DeltaResult got = run_delta(kernel, executor, c, in, random_steps(kSequences, c.length, 2 * c.length, random));
      EXPECT_LE(got.out.distance(expected.out), 1e-5);
      DeltaResult again = run_delta(kernel, {&one}, c, in, random_steps(kSequences, c.length, 5, random));
      EXPECT_TRUE(again.out.same_bits(got.out));
      EXPECT_EQ(again.state, got.state);
    });
  }
}

}  // namespace
}  // namespace millrace
