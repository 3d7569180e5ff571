// The cases on which kernels of the selective scan are tested.
#pragma once

#include "kernels/ssm_scan/ssm_scan.h"
#include "state_op_cases.h"

namespace millrace {

struct ScanCase {
  SsmShape shape;
  float least_step, most_step;
  int32_t length;   // of each sequence, in rows
  float decay = 1;  // factor of the decays' exponents
};

inline std::vector<ScanCase> scan_cases() {
  constexpr float kNone = std::numeric_limits<float>::infinity();
  return {
      {{.heads = 1, .head_dim = 8, .groups = 1, .state = 16}, 0, kNone, 5},
      {{.heads = 6, .head_dim = 19, .groups = 2, .state = 23}, 0, kNone, 23},
      {{.heads = 4, .head_dim = 64, .groups = 1, .state = 128}, 0, kNone, 50},
      {{.heads = 4, .head_dim = 80, .groups = 4, .state = 64}, 0.5f, 0.9f, 40},
      {{.heads = 3, .head_dim = 33, .groups = 3, .state = 256}, 0.001f, kNone, 9},
      {{.heads = 2, .head_dim = 32, .groups = 1, .state = 24}, 0, kNone, 129},
      {{.heads = 4, .head_dim = 48, .groups = 2, .state = 16}, 0, kNone, 200},
      {{.heads = 2, .head_dim = 80, .groups = 1, .state = 256}, 0, kNone, 70},
      {{.heads = 4, .head_dim = 80, .groups = 2, .state = 128}, 0, kNone, 300},
      {{.heads = 2, .head_dim = 64, .groups = 1, .state = 64}, 0, kNone, 70, /*decay=*/100},
      {{.heads = 2, .head_dim = 16, .groups = 1, .state = 16}, 0, kNone, 128, 1e30f},
  };
}

// Inputs of whole sequences, row after row.
struct ScanInputs {
  ScanInputs(const ScanCase& c, int sequences, Random& random)
      : x(sequences * c.length, c.shape.inner(), random),
        b(sequences * c.length, c.shape.group_cols(), random),
        c(sequences * c.length, c.shape.group_cols(), random),
        dt(sequences * c.length, c.shape.heads, random) {
    for (auto* values : {&dt_bias, &a, &d}) {
      values->resize(static_cast<size_t>(c.shape.heads));
      for (float& value : *values) value = random.normal();
    }
    for (float& value : a) value = -c.decay * std::exp(value);
  }
  TestMatrix x, b, c, dt;
  std::vector<float> dt_bias, a, d;
};

// The scan in its quadratic form, without a state: out[t] = sum over s <= t of (C[t] B[s]) e^(a (dt[s+1] + ... +
// dt[t])) dt[s] x[s], plus d x[t].
inline TestMatrix scanned(const ScanCase& c, int sequences, ScanInputs& in) {
  const SsmShape& shape = c.shape;
  TestMatrix out(sequences * c.length, shape.inner());
  for (int64_t row = 0; row < sequences * c.length; ++row) {
    for (int h = 0; h < shape.heads; ++h) {
      const auto at = static_cast<size_t>(h);
      const int64_t group = h / (shape.heads / shape.groups);
      std::vector<double> sum(static_cast<size_t>(shape.head_dim));
      double later = 0;  // the steps between s and t
      for (int64_t s = row; s >= row - row % c.length; --s) {
        const double raw = double(in.dt.at(s, h)) + in.dt_bias[at];
        const double step = std::clamp<double>(std::log1p(std::exp(raw)), c.least_step, c.most_step);
        double score = 0;
        for (int64_t i = 0; i < shape.state; ++i)
          score += double(in.c.at(row, group * shape.state + i)) * in.b.at(s, group * shape.state + i);
        score *= std::exp(in.a[at] * later) * step;
        later += step;
        for (int64_t p = 0; p < shape.head_dim; ++p)
          sum[static_cast<size_t>(p)] += score * in.x.at(s, h * shape.head_dim + p);
      }
      for (int64_t p = 0; p < shape.head_dim; ++p) {
        const int64_t column = h * shape.head_dim + p;
        out.at(row, column) = static_cast<float>(sum[static_cast<size_t>(p)] + double(in.d[at]) * in.x.at(row, column));
      }
    }
  }
  return out;
}

}  // namespace millrace
