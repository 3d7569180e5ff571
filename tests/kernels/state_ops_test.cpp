// Ops that models of experts and of recurrent state call: so far a scalar reference each, held to plain loops here.
#include <gtest/gtest.h>

#include "kernels/kernel_set.h"
#include "support.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace millrace {
namespace {

TEST(GroupedLinear, EachPairIsMultipliedWithItsOwnMatrix) {
  for (const DType format : {DType::F32, DType::BF16, DType::Q8_0, DType::Q4_K}) {
    Random random;
    const int64_t groups = 5, n = 7, k = 512, rows = 6, per_row = 2;
    TestMatrix dense(groups * n, k, random), x(rows, k, random), y(rows * per_row, n);
    std::vector<std::byte> packed(static_cast<size_t>(groups * n) * row_bytes(format, k));
    std::vector<float> weights(static_cast<size_t>(groups * n * k));
    for (int64_t i = 0; i < groups * n; ++i) {
      std::byte* row = packed.data() + static_cast<size_t>(i) * row_bytes(format, k);
      quantize_row(format, &dense.at(i, 0), row, k);
      dequantize_row(format, row, weights.data() + i * k, k);
    }
    std::vector<int32_t> chosen;  // some groups several times, some never, one pair without a group
    for (int64_t i = 0; i < rows * per_row; ++i) chosen.push_back(static_cast<int32_t>(random.below(3)));
    chosen[4] = -1;
    ThreadPool pool(2);
    GroupedLinearOp::reference()->run({.x = x.view(),
                                       .weights = {format, groups * n, k, packed.data()},
                                       .groups = chosen.data(),
                                       .per_row = per_row,
                                       .y = y.view()},
                                      {&pool, nullptr});
    EXPECT_TRUE(y.spare_is_untouched());
    for (int64_t pair = 0; pair < rows * per_row; ++pair) {
      for (int64_t i = 0; i < n; ++i) {
        double expected = 0, norm = 0;
        const int64_t group = chosen[static_cast<size_t>(pair)];
        for (int64_t j = 0; group >= 0 && j < k; ++j) {
          const double product =
              double(weights[static_cast<size_t>((group * n + i) * k + j)]) * x.at(pair / per_row, j);
          expected += product;
          norm += std::abs(product);
        }
        EXPECT_NEAR(y.at(pair, i), expected, 1e-6 * norm) << name(format) << " " << pair << " " << i;
      }
    }
  }
}

// Two sequences, in one piece and in random pieces: the state carries the inputs from one piece to the next.
TEST(CausalConv, PiecesContinueTheirSequences) {
  for (const int taps : {1, 2, 4}) {
    Random random;
    const int64_t channels = 19, length = 23;
    const size_t stride = static_cast<size_t>(std::max(1, taps - 1) * channels) * sizeof(float) + 64;
    TestMatrix x(2 * length, channels, random), weight(channels, taps, random);
    std::vector<float> taps_of;
    for (int64_t c = 0; c < channels; ++c) {
      for (int j = 0; j < taps; ++j) taps_of.push_back(weight.at(c, j));
    }
    std::vector<std::byte> state(3 * stride);
    const int32_t slots[] = {2, 0};
    int32_t done[] = {0, 0};
    while (done[0] < length || done[1] < length) {
      std::vector<SequenceSlice> slices;
      int64_t rows = 0;
      int32_t begins[] = {done[0], done[1]};
      for (int s = 0; s < 2; ++s) {
        const auto count = static_cast<int32_t>(std::min<int64_t>(1 + random.below(6), length - done[s]));
        if (count == 0) continue;
        slices.push_back({.first_row = static_cast<int32_t>(rows), .rows = count, .past = done[s], .slot = slots[s]});
        rows += count;
        done[s] += count;
      }
      TestMatrix piece(rows, channels), out(rows, channels);
      for (const auto& slice : slices) {
        const int s = slice.slot == slots[0] ? 0 : 1;
        for (int32_t t = 0; t < slice.rows; ++t) {
          for (int64_t c = 0; c < channels; ++c) piece.at(slice.first_row + t, c) = x.at(s * length + begins[s] + t, c);
        }
      }
      CausalConvOp::reference()->run({.x = piece.view(),
                                      .out = out.view(),
                                      .weight = taps_of.data(),
                                      .taps = taps,
                                      .state = state.data(),
                                      .stride = stride,
                                      .sequences = slices},
                                     {});
      for (const auto& slice : slices) {
        const int s = slice.slot == slots[0] ? 0 : 1;
        for (int32_t t = 0; t < slice.rows; ++t) {
          for (int64_t c = 0; c < channels; ++c) {
            double expected = 0;
            for (int j = 0; j < taps; ++j) {
              const int64_t at = begins[s] + t - taps + 1 + j;
              if (at >= 0) expected += double(weight.at(c, j)) * x.at(s * length + at, c);
            }
            EXPECT_NEAR(out.at(slice.first_row + t, c), expected, 1e-5) << taps << " taps, position " << begins[s] + t;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
