#include <algorithm>
#include <cmath>

#include "kernels/row_work.h"
#include "kernels/simd/targets.h"
#include "kernels/ssm_scan/ssm_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssm_scan/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

// Rows that one pass over the state computes. The state of a head exceeds the first-level cache of some CPUs; several
// rows per load and store of a state vector make the scan of a prompt bound by arithmetic. Each element passes through
// the same operations in the same order for any number of rows, so results do not depend on how a prompt is cut.
constexpr int kRows = 4;

// Vectors of columns side by side: whole cache lines, read in the order of their addresses. The caches do not hold the
// states of all layers, so a decode step reads them from memory, and a later row of the state is prefetched.
constexpr int kTogether = 4, kRowsAhead = 16;
constexpr int64_t kLineFloats = 16;

// One row of one head.
struct Row {
  const float *x, *b, *c;  // [head_dim], [state], [state]
  float* out;              // [head_dim]
  float dt, decay;
};

// One vector of the head's columns, or (kWidth = 1) one column.
template <int kWidth>
struct Lane {
  static HWY_INLINE F32Vec get(const float* p) { return load(p); }
  static HWY_INLINE void set(F32Vec v, float* p) { store(v, p); }
  static HWY_INLINE F32Vec all(float v) { return broadcast(v); }
  static HWY_INLINE F32Vec times(F32Vec a, F32Vec b) { return hn::Mul(a, b); }
  static HWY_INLINE F32Vec plus_product(F32Vec a, F32Vec b, F32Vec c) { return hn::MulAdd(a, b, c); }
  using Type = F32Vec;
};
template <>
struct Lane<1> {
  static HWY_INLINE float get(const float* p) { return *p; }
  static HWY_INLINE void set(float v, float* p) { *p = v; }
  static HWY_INLINE float all(float v) { return v; }
  static HWY_INLINE float times(float a, float b) { return a * b; }
  static HWY_INLINE float plus_product(float a, float b, float c) { return std::fma(a, b, c); }
  using Type = float;
};

// Advances `count` adjacent lanes of the state, [n][stride], from column p on by `rows` rows.
template <int width, int count, int rows>
HWY_INLINE void advance(const Row* row, float d, float* state, int64_t n, int64_t stride, int64_t p) {
  using L = Lane<width>;
  typename L::Type input[rows][count], decay[rows], sum[rows][count];
  MR_UNROLL for (int t = 0; t < rows; ++t) {
    decay[t] = L::all(row[t].decay);
    MR_UNROLL for (int j = 0; j < count; ++j) {
      const auto x = L::get(row[t].x + p + j * width);
      input[t][j] = L::times(x, L::all(row[t].dt));
      sum[t][j] = L::times(x, L::all(d));
    }
  }
  float* at = state + p;
  for (int64_t i = 0; i < n; ++i, at += stride) {
    for (int64_t line = 0; line < count * width; line += kLineFloats)
      __builtin_prefetch(at + kRowsAhead * stride + line);
    MR_UNROLL for (int j = 0; j < count; ++j) {
      auto s = L::get(at + j * width);
      MR_UNROLL for (int t = 0; t < rows; ++t) {
        s = L::plus_product(input[t][j], L::all(row[t].b[i]), L::times(s, decay[t]));
        sum[t][j] = L::plus_product(s, L::all(row[t].c[i]), sum[t][j]);
      }
      L::set(s, at + j * width);
    }
  }
  MR_UNROLL for (int t = 0; t < rows; ++t) {
    MR_UNROLL for (int j = 0; j < count; ++j) L::set(sum[t][j], row[t].out + p + j * width);
  }
}

template <int rows>
void advance_head(const Row* row, float d, float* state, int64_t n, int64_t dim) {
  int64_t p = 0;
  for (; p + kTogether * kLanes <= dim; p += kTogether * kLanes)
    advance<kLanes, kTogether, rows>(row, d, state, n, dim, p);
  for (; p + kLanes <= dim; p += kLanes) advance<kLanes, 1, rows>(row, d, state, n, dim, p);
  for (; p < dim; ++p) advance<1, 1, rows>(row, d, state, n, dim, p);
}

void scan_head(const SsmScanOp::Args& a, const SequenceSlice& slice, int64_t h) {
  const SsmShape& shape = a.shape;
  const int64_t dim = shape.head_dim, n = shape.state, group = h / (shape.heads / shape.groups);
  float* state = reinterpret_cast<float*>(a.state + static_cast<size_t>(slice.slot) * a.stride) + h * n * dim;
  const auto read = [&](int64_t index) -> Row {
    const float raw = a.dt.row<float>(index)[h] + a.dt_bias[h];
    const float dt = std::clamp(raw > 20 ? raw : std::log1p(std::exp(raw)), a.least_step, a.most_step);
    return {a.x.row<float>(index) + h * dim,
            a.b.row<float>(index) + group * n,
            a.c.row<float>(index) + group * n,
            a.out.row<float>(index) + h * dim,
            dt,
            std::exp(dt * a.a[h])};
  };
  int64_t row = slice.first_row;
  const int64_t end = row + slice.rows;
  for (; row + kRows <= end; row += kRows) {
    const Row rows[] = {read(row), read(row + 1), read(row + 2), read(row + 3)};
    advance_head<kRows>(rows, a.d[h], state, n, dim);
  }
  for (; row < end; ++row) {
    const Row one = read(row);
    advance_head<1>(&one, a.d[h], state, n, dim);
  }
}

class SimdSsmScan final : public Kernel<SsmScanOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.isa.has(kTargetIsa); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.shape.state_elements(), 8, hardware);
  }

  void run(const Args& a, const Executor& executor) const override {
    const auto sequences = static_cast<int64_t>(a.sequences.size());
    if (sequences == 0) return;
    const int64_t heads = a.shape.heads;
    const int64_t elements = a.x.rows * a.shape.state_elements() / (sequences * heads);
    for_rows(executor, sequences * heads, elements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) scan_head(a, a.sequences[static_cast<size_t>(i / heads)], i % heads);
    });
  }
};

}  // namespace

const Kernel<SsmScanOp>* ssm_scan_kernel() {
  static const SimdSsmScan kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<SsmScanOp> SsmScanOp::cpu() { return {MR_EACH_TARGET(ssm_scan_kernel), SsmScanOp::reference()}; }

}  // namespace millrace
#endif
