// f32 activations and arithmetic for all formats. Converts a few rows of weights to f32 in the L1 cache and multiplies
// all rows of x with them. A row's result does not depend on m: the order of each sum is fixed.
#include <algorithm>

#include "kernels/linear/estimate.h"
#include "kernels/linear/rows/rows.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/rows/exact.cpp"
#include <hwy/foreach_target.h>

#include "kernels/linear/rows/to_f32-inl.h"
#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kTileRows = 4;    // rows of weights per micro-kernel
constexpr int64_t kStretch = 1024;  // elements of a row in the tile: four rows of f32 take 16 KB

// acc[i][j] += x[i] * w[j] on kLanes elements from k on.
template <int m, class Load>
HWY_INLINE void add_products(const float* const (&x)[m], const float* const (&w)[kTileRows], int64_t k, Load load_at,
                             F32Vec (&acc)[m][kTileRows]) {
  F32Vec ws[kTileRows];
  MR_UNROLL for (int j = 0; j < kTileRows; ++j) ws[j] = load_at(w[j] + k);
  MR_UNROLL for (int i = 0; i < m; ++i) {
    const F32Vec xs = load_at(x[i] + k);
    MR_UNROLL for (int j = 0; j < kTileRows; ++j) acc[i][j] = hn::MulAdd(xs, ws[j], acc[i][j]);
  }
}

// sums[i][j] = dot product of x[i] and w[j] over one stretch.
template <int m>
HWY_INLINE void dot_tile(const float* const (&x)[m], const float* const (&w)[kTileRows], int64_t count,
                         float (&sums)[m][kTileRows]) {
  F32Vec acc[m][kTileRows];
  MR_UNROLL for (int i = 0; i < m; ++i) { MR_UNROLL for (int j = 0; j < kTileRows; ++j) acc[i][j] = hn::Zero(kF32); }
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    add_products<m>(
        x, w, k, [](const float* p) HWY_ATTR { return load(p); }, acc);
  }
  if (k < count) {
    const auto load_rest = [&](const float* p) HWY_ATTR {
      return load_some<DType::F32>(reinterpret_cast<const std::byte*>(p), count - k);
    };
    add_products<m>(x, w, k, load_rest, acc);
  }
  MR_UNROLL for (int i = 0; i < m; ++i) {
    MR_UNROLL for (int j = 0; j < kTileRows; ++j) sums[i][j] = sum_of(acc[i][j]);
  }
}

struct Tile {
  const float* rows[kTileRows];
  int64_t n;      // index of the first row
  int64_t valid;  // rows inside the matrix; the others repeat the last one
  int64_t k, count;
};

template <int m>
void multiply(const LinearArgs& args, const Tile& tile, int64_t first_m) {
  const float* x[m];
  for (int i = 0; i < m; ++i) x[i] = args.x.row<float>(first_m + i) + tile.k;
  float sums[m][kTileRows];
  dot_tile<m>(x, tile.rows, tile.count, sums);
  for (int i = 0; i < m; ++i) {
    float* y = args.y.row<float>(first_m + i) + tile.n;
    for (int64_t j = 0; j < tile.valid; ++j) {
      const bool fresh = tile.k == 0;
      const float bias = fresh && args.bias != nullptr ? args.bias[tile.n + j] : 0;
      y[j] = (fresh && !args.accumulate ? 0 : y[j]) + (sums[i][j] + bias);
    }
  }
}

void multiply_all(const LinearArgs& args, const Tile& tile) {
  int64_t i = 0;
  for (; i + 4 <= args.x.rows; i += 4) multiply<4>(args, tile, i);
  for (; i < args.x.rows; ++i) multiply<1>(args, tile, i);
}

void run_rows(const LinearArgs& args, int64_t n_begin, int64_t n_end) {
  const LinearWeights& w = *args.weights;
  const size_t stride = row_bytes(w.format, w.k);
  alignas(64) float buffer[kTileRows][kStretch];
  for (int64_t n = n_begin; n < n_end; n += kTileRows) {
    Tile tile{{}, n, std::min(kTileRows, n_end - n), 0, 0};
    for (; tile.k < w.k; tile.k += kStretch) {
      tile.count = std::min(kStretch, w.k - tile.k);
      for (int64_t j = 0; j < kTileRows; ++j) {
        const std::byte* row =
            w.data + static_cast<size_t>(n + std::min(j, tile.valid - 1)) * stride + row_bytes(w.format, tile.k);
        if (w.format == DType::F32) {
          tile.rows[j] = reinterpret_cast<const float*>(row);
          continue;
        }
        if (j < tile.valid) row_to_f32(w.format, row, tile.count, buffer[j]);
        tile.rows[j] = buffer[std::min(j, tile.valid - 1)];
      }
      multiply_all(args, tile);
    }
  }
}

class ExactLinear final : public RowsKernel {
 public:
  std::string_view name() const override { return "exact_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return p.layout == rows_layout().name() && hardware.isa.has(kTargetIsa);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    constexpr double kFlopsToUnpack = 35, kShareOfPeak = 0.6;
    const double flops = 2 * double(p.m) / kShareOfPeak + (p.format == DType::F32 ? 2 : kFlopsToUnpack);
    const double compute_us = 1e-3 * double(p.n) * double(p.k) * flops / hardware.ceilings.f32_gflops;
    return hardware.ceilings.region_us + std::max(reading_us(p, 1, hardware), compute_us);
  }

 private:
  void multiply_rows(const Args& args, int64_t n_begin, int64_t n_end) const override {
    run_rows(args, n_begin, n_end);
  }
};

}  // namespace

const RowsKernel* exact_linear() {
  static const ExactLinear kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

std::vector<const RowsKernel*> exact_linear_kernels() { return {MR_EACH_TARGET(exact_linear)}; }

}  // namespace millrace
#endif
