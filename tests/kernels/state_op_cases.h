// The cases on which kernels with recurrent state are tested: a few sequences whose rows come in several steps.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/causal_conv/causal_conv.h"
#include "kernels/delta_rule/delta_rule.h"
#include "support.h"

namespace millrace {

struct ConvCase {
  int64_t channels;
  int taps;
  bool bias, silu;
  int32_t length;  // of each sequence, in rows
};

inline std::vector<ConvCase> conv_cases() {
  return {
      {19, 1, false, false, 23}, {19, 2, true, false, 23},  {300, 3, false, false, 50}, {19, 4, false, true, 23},
      {300, 4, true, true, 200}, {8192, 4, false, true, 5}, {133, 8, true, false, 23},
  };
}

struct DeltaCase {
  DeltaRuleShape shape;
  int32_t length;
  float decay = 1;  // factor of the decays' exponents
  bool normed = false;
};

inline std::vector<DeltaCase> delta_cases() {
  return {
      {{2, 4, 128, 128}, 40},
      {{2, 4, 128, 128, /*tiled=*/true}, 7},
      {{1, 1, 16, 24}, 33},
      {{2, 6, 20, 37, true}, 19},
      {{1, 3, 7, 5}, 20},
      {{1, 2, 256, 64}, 9},
      {{3, 3, 64, 32}, 70},
      {{1, 2, 64, 160}, 129},
      {{1, 2, 32, 64}, 200},
      {{2, 4, 104, 112, true}, 66},
      {{2, 4, 128, 128}, 300},
      {{1, 1, 64, 64}, 130, /*decay=*/100},
      {{1, 1, 64, 64}, 192, 1e30f},
  };
}

// Random inputs of a delta rule over whole sequences.
struct DeltaInputs {
  DeltaInputs(const DeltaRuleShape& s, int64_t rows, Random& random, float decays = 1)
      : q(rows, s.key_width(), random),
        k(rows, s.key_width(), random),
        v(rows, s.value_width(), random),
        a(rows, s.value_heads, random, 2),
        b(rows, s.value_heads, random, 2),
        gate(rows, s.value_width(), random) {
    for (int i = 0; i < s.value_dim; ++i) norm.push_back(1 + 0.2f * random.normal());
    for (int h = 0; h < s.value_heads; ++h) {
      decay.push_back(-decays * std::exp(random.normal()));
      dt_bias.push_back(random.normal());
    }
  }
  TestMatrix q, k, v, a, b, gate;
  std::vector<float> decay, dt_bias, norm;
  static constexpr float kEpsilon = 1e-5f;  // of the norm
};

// Steps that advance `count` sequences of `length` rows by random pieces of up to `most` rows each. Slots are not in
// the order of the sequences, and one slot stays unused.
inline std::vector<std::vector<SequenceSlice>> random_steps(int count, int32_t length, int most, Random& random) {
  std::vector<std::vector<SequenceSlice>> steps;
  std::vector<int32_t> done(static_cast<size_t>(count));
  while (std::any_of(done.begin(), done.end(), [&](int32_t d) { return d < length; })) {
    std::vector<SequenceSlice> slices;
    int32_t rows = 0;
    for (int s = 0; s < count; ++s) {
      int32_t& at = done[static_cast<size_t>(s)];
      const int32_t n = std::min(1 + random.below(most), length - at);
      if (n == 0) continue;
      slices.push_back({.first_row = rows, .rows = n, .past = at, .slot = count - s});
      rows += n;
      at += n;
    }
    steps.push_back(slices);
  }
  return steps;
}
inline int64_t rows_of(const std::vector<SequenceSlice>& slices) {
  return slices.empty() ? 0 : slices.back().first_row + slices.back().rows;
}
// Copies the rows of a step from or to the rows of whole sequences, [sequences * length, cols].
inline void take_rows(const std::vector<SequenceSlice>& slices, int count, int32_t length, TestMatrix& all,
                      TestMatrix& step, bool back = false) {
  for (const SequenceSlice& slice : slices) {
    for (int32_t t = 0; t < slice.rows; ++t) {
      const int64_t from = int64_t{count - slice.slot} * length + slice.past + t, to = slice.first_row + t;
      for (int64_t c = 0; c < all.view().cols; ++c)
        (back ? all.at(from, c) : step.at(to, c)) = back ? step.at(to, c) : all.at(from, c);
    }
  }
}

}  // namespace millrace
