// Ops of recurrent state: the scalar references against plain loops.
#include <gtest/gtest.h>

#include "kernels/kernel_set.h"
#include "support.h"

namespace millrace {
namespace {

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
