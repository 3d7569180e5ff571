// Rows of F32, F16 or BF16 straight from memory, in f32 arithmetic: decode and small batches. Exact, since every such
// number is an f32; a result does not depend on how many rows of x there are.
#include <algorithm>

#include "kernels/linear/rows/rows.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/rows/plain.cpp"
#include <hwy/foreach_target.h>

#include "kernels/linear/rows/to_f32-inl.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

// Rows of weights to a tile: as many sums in flight as the FMA pipes need and the registers hold.
template <int m>
constexpr int kTileRows = m == 1 ? 8 : 4;

// The last elements of a row, fewer than kLanes.
template <DType dtype>
float rest_of_dot(const float* x, const std::byte* w, int64_t count) {
  return sum_of(
      hn::Mul(load_some<DType::F32>(reinterpret_cast<const std::byte*>(x), count), load_some<dtype>(w, count)));
}

template <DType dtype, int m>
void multiply_tile(const LinearArgs& args, int64_t n, int64_t first_m) {
  constexpr int kRows = kTileRows<m>;
  const LinearWeights& weights = *args.weights;
  const int64_t valid = std::min<int64_t>(kRows, weights.n - n), k = weights.k;
  const std::byte* w[kRows];
  for (int j = 0; j < kRows; ++j)
    w[j] = weights.data + (n + std::min<int64_t>(j, valid - 1)) * k * kElementBytes<dtype>;
  const float* x[m];
  for (int i = 0; i < m; ++i) x[i] = args.x.row<float>(first_m + i);

  F32Vec acc[kRows][m];
  MR_UNROLL for (int j = 0; j < kRows; ++j) { MR_UNROLL for (int i = 0; i < m; ++i) acc[j][i] = hn::Zero(kF32); }
  int64_t at = 0;
  for (; at + kLanes <= k; at += kLanes) {
    F32Vec xs[m];
    MR_UNROLL for (int i = 0; i < m; ++i) xs[i] = load(x[i] + at);
    MR_UNROLL for (int j = 0; j < kRows; ++j) {
      const F32Vec ws = load_plain<dtype>(w[j] + at * kElementBytes<dtype>);
      MR_UNROLL for (int i = 0; i < m; ++i) acc[j][i] = hn::MulAdd(xs[i], ws, acc[j][i]);
    }
  }
  float sums[kRows][m];
  MR_UNROLL for (int j = 0; j < kRows; ++j) { MR_UNROLL for (int i = 0; i < m; ++i) sums[j][i] = sum_of(acc[j][i]); }
  for (int64_t j = 0; j < valid; ++j) {
    for (int i = 0; i < m; ++i) {
      float sum = sums[j][i];
      if (at < k) sum += rest_of_dot<dtype>(x[i] + at, w[j] + at * kElementBytes<dtype>, k - at);
      float& y = args.y.row<float>(first_m + i)[n + j];
      y = (args.accumulate ? y : 0) + (sum + (args.bias != nullptr ? args.bias[n + j] : 0));
    }
  }
}

constexpr int64_t kRowsAtOnce = 8;  // a multiple of every tile's rows

template <DType dtype>
void multiply_rows(const LinearArgs& args, int64_t n_begin, int64_t n_end) {
  for (int64_t n = n_begin; n < n_end; n += kRowsAtOnce) {
    const int64_t end = std::min(n + kRowsAtOnce, n_end);
    int64_t i = 0;
    for (; i + 4 <= args.x.rows; i += 4) {
      for (int64_t j = n; j < end; j += kTileRows<4>) multiply_tile<dtype, 4>(args, j, i);
    }
    for (; i < args.x.rows; ++i) multiply_tile<dtype, 1>(args, n, i);
  }
}

class PlainLinear : public LinearKernel {
 public:
  std::string_view name() const override { return "plain_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return p.layout == rows_layout().name() && !is_quantized(p.format) && hardware.isa.has(kTargetIsa);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double weights = double(p.n) * double(p.k);
    const double bytes_us = 1e-3 * double(row_bytes(p.format, p.k)) * double(p.n) / (0.9 * hardware.ceilings.read_gbs);
    const double compute_us = 2e-3 * weights * double(p.m) / (0.35 * hardware.ceilings.f32_gflops);
    return hardware.ceilings.region_us + std::max(bytes_us, compute_us);
  }
  void run(const Args& args, const Executor& executor) const override {
    const int64_t tiles = (args.weights->n + kRowsAtOnce - 1) / kRowsAtOnce;
    const int64_t grain = std::max<int64_t>(1, tiles / (8 * executor.pool->size()));
    executor.pool->parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
      const int64_t n_begin = begin * kRowsAtOnce, n_end = std::min(end * kRowsAtOnce, args.weights->n);
      if (args.weights->format == DType::F32) return multiply_rows<DType::F32>(args, n_begin, n_end);
      if (args.weights->format == DType::F16) return multiply_rows<DType::F16>(args, n_begin, n_end);
      multiply_rows<DType::BF16>(args, n_begin, n_end);
    });
  }
};

}  // namespace

const LinearKernel* plain_linear() {
  static const PlainLinear kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<LinearOp> plain_linear_kernels() { return {MR_EACH_TARGET(plain_linear)}; }

}  // namespace millrace
#endif
