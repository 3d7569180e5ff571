// Ops of recurrent state: every kernel on sequences that come in pieces, against plain loops over whole sequences.
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

}  // namespace
}  // namespace millrace
