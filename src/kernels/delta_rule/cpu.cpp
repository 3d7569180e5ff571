#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/delta_rule/delta_rule.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_rule/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/math-inl.h"

// Rows are processed one after the other, with one pass over the state per row: the pass that updates S for row t also
// computes S^T k of row t + 1. That is four multiply-adds per element of S. The chunked form (matrix products within
// chunks of 64 rows) has five, so f32 kernels gain nothing from it. A row's result also does not depend on how rows are
// split into steps.
HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

constexpr int kMostKeyDim = 256;
constexpr int kRows = 16;  // rows whose q and k are prepared at once

// Inputs of up to kRows rows of one head.
struct Prepared {
  float q[kRows][kMostKeyDim], k[kRows][kMostKeyDim];  // divided by their lengths; q also by sqrt(key_dim)
  float decay[kRows], beta[kRows];                     // factors of the state and of the change
};

float squares(const float* x, int n) {
  F32Vec sum = hn::Zero(kF32);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = hn::MulAdd(load(x + i), load(x + i), sum);
  float total = sum_of(sum);
  for (; i < n; ++i) total += x[i] * x[i];
  return total;
}

void scale(const float* x, float factor, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = x[i] * factor;
}

void prepare(const DeltaRuleOp::Args& a, int h, int64_t first_row, int rows, Prepared& to) {
  const int n = a.shape.key_dim;
  const int64_t at = int64_t{a.shape.key_head(h)} * n;
  const float scale_of_q = 1 / std::sqrt(static_cast<float>(n));
  for (int t = 0; t < rows; ++t) {
    const float* q = a.q.row<float>(first_row + t) + at;
    const float* k = a.k.row<float>(first_row + t) + at;
    scale(q, scale_of_q / std::sqrt(squares(q, n) + DeltaRuleOp::kLengthEpsilon), n, to.q[t]);
    scale(k, 1 / std::sqrt(squares(k, n) + DeltaRuleOp::kLengthEpsilon), n, to.k[t]);
    const float x = a.a.row<float>(first_row + t)[h] + a.dt_bias[h];
    to.decay[t] = std::exp(a.decay[h] * (x > 20 ? x : std::log1p(std::exp(x))));
    to.beta[t] = 1 / (1 + std::exp(-a.b.row<float>(first_row + t)[h]));
  }
}

// Some columns of one head: of its state, and of the rows of v and out.
struct Columns {
  float* state;
  int64_t state_stride;
  const float* v;
  int64_t v_stride;
  float* out;
  int64_t out_stride;
};

// One row: updates the columns, writes their output, and with `next` (k of the following row) returns S^T next.
template <int vecs, bool has_next>
HWY_INLINE void step(const Columns& c, int key_dim, const float* q, const float* k, const float* next, float decay,
                     const F32Vec (&change)[vecs], float* out, F32Vec (&known)[vecs]) {
  F32Vec sum[vecs];
  MR_UNROLL for (int j = 0; j < vecs; ++j) sum[j] = known[j] = hn::Zero(kF32);
  const F32Vec factor = broadcast(decay);
  for (int i = 0; i < key_dim; ++i) {
    float* row = c.state + i * c.state_stride;
    const F32Vec of_k = broadcast(k[i]), of_q = broadcast(q[i]);
    MR_UNROLL for (int j = 0; j < vecs; ++j) {
      const F32Vec x = hn::MulAdd(of_k, change[j], hn::Mul(factor, load(row + j * kLanes)));
      store(x, row + j * kLanes);
      sum[j] = hn::MulAdd(of_q, x, sum[j]);
      if constexpr (has_next) known[j] = hn::MulAdd(broadcast(next[i]), x, known[j]);
    }
  }
  MR_UNROLL for (int j = 0; j < vecs; ++j) store(sum[j], out + j * kLanes);
}

template <int vecs>
void advance(const Prepared& p, int key_dim, int rows, const Columns& c) {
  F32Vec known[vecs], change[vecs];
  MR_UNROLL for (int j = 0; j < vecs; ++j) known[j] = hn::Zero(kF32);
  for (int i = 0; i < key_dim; ++i) {
    MR_UNROLL for (int j = 0; j < vecs; ++j) known[j] =
        hn::MulAdd(broadcast(p.k[0][i]), load(c.state + i * c.state_stride + j * kLanes), known[j]);
  }
  for (int t = 0; t < rows; ++t) {
    MR_UNROLL for (int j = 0; j < vecs; ++j) {
      const F32Vec v = load(c.v + t * c.v_stride + j * kLanes);
      change[j] = hn::Mul(broadcast(p.beta[t]), hn::NegMulAdd(broadcast(p.decay[t]), known[j], v));
    }
    float* out = c.out + t * c.out_stride;
    if (t + 1 < rows) {
      step<vecs, true>(c, key_dim, p.q[t], p.k[t], p.k[t + 1], p.decay[t], change, out, known);
    } else {
      step<vecs, false>(c, key_dim, p.q[t], p.k[t], nullptr, p.decay[t], change, out, known);
    }
  }
}

// Fewer columns than a vector has lanes: on padded copies.
void advance_end(const Prepared& p, int key_dim, int rows, const Columns& c, int64_t n) {
  alignas(64) float state[kMostKeyDim * kLanes] = {};
  float v[kRows * kLanes] = {}, out[kRows * kLanes];
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  for (int i = 0; i < key_dim; ++i) std::memcpy(state + i * kLanes, c.state + i * c.state_stride, bytes);
  for (int t = 0; t < rows; ++t) std::memcpy(v + t * kLanes, c.v + t * c.v_stride, bytes);
  advance<1>(p, key_dim, rows, {state, kLanes, v, kLanes, out, kLanes});
  for (int i = 0; i < key_dim; ++i) std::memcpy(c.state + i * c.state_stride, state + i * kLanes, bytes);
  for (int t = 0; t < rows; ++t) std::memcpy(c.out + t * c.out_stride, out + t * kLanes, bytes);
}

// The RMS norm of a head's outputs, times silu(gate).
void norm_and_gate(const DeltaRuleOp::Args& a, int64_t row, int h) {
  const int n = a.shape.value_dim;
  float* out = a.out.row<float>(row) + int64_t{h} * n;
  const float* gate = a.gate.row<float>(row) + int64_t{h} * n;
  const float factor = 1 / std::sqrt(squares(out, n) / static_cast<float>(n) + a.epsilon);
  int j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const F32Vec x = load(gate + j), silu = hn::Div(x, hn::Add(broadcast(1.0f), exp(hn::Neg(x))));
    const F32Vec normed = hn::Mul(hn::Mul(load(out + j), broadcast(factor)), load(a.norm + j));
    store(hn::Mul(normed, silu), out + j);
  }
  for (; j < n; ++j) out[j] *= factor * a.norm[j] * (gate[j] / (1 + std::exp(-gate[j])));
}

void advance_head(const DeltaRuleOp::Args& a, const SequenceSlice& slice, int h) {
  constexpr int kVecs = 4;
  const int key_dim = a.shape.key_dim;
  const int64_t width = a.shape.value_dim, at = h * width;
  auto* state = reinterpret_cast<float*>(a.state + static_cast<size_t>(slice.slot) * a.stride) + at * key_dim;
  Prepared prepared;
  for (int32_t begin = 0; begin < slice.rows; begin += kRows) {
    const int rows = std::min(kRows, slice.rows - begin);
    const int64_t row = slice.first_row + begin;
    prepare(a, h, row, rows, prepared);
    const auto columns = [&](int64_t j) {
      return Columns{state + j,   width, a.v.row<float>(row) + at + j, a.v.stride, a.out.row<float>(row) + at + j,
                     a.out.stride};
    };
    int64_t j = 0;
    for (; j + kVecs * kLanes <= width; j += kVecs * kLanes) advance<kVecs>(prepared, key_dim, rows, columns(j));
    for (; j + kLanes <= width; j += kLanes) advance<1>(prepared, key_dim, rows, columns(j));
    if (j < width) advance_end(prepared, key_dim, rows, columns(j), width - j);
    for (int t = 0; t < rows && a.norm != nullptr; ++t) norm_and_gate(a, row + t, h);
  }
}

class SimdDeltaRule final : public Kernel<DeltaRuleOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.isa.has(kTargetIsa) && p.shape.key_dim <= kMostKeyDim;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.shape.state_elements(), 8, hardware);
  }

  void run(const Args& a, const Executor& executor) const override {
    const auto sequences = static_cast<int64_t>(a.sequences.size());
    if (sequences == 0) return;
    const int64_t heads = a.shape.value_heads, work = a.v.rows * a.shape.state_elements();
    for_rows(executor, sequences * heads, work / (sequences * heads), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        advance_head(a, a.sequences[static_cast<size_t>(i / heads)], static_cast<int>(i % heads));
    });
  }
};

}  // namespace

const Kernel<DeltaRuleOp>* delta_rule_kernel() {
  static const SimdDeltaRule kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<DeltaRuleOp> DeltaRuleOp::cpu() { return {MR_EACH_TARGET(delta_rule_kernel), DeltaRuleOp::reference()}; }

}  // namespace millrace
#endif
