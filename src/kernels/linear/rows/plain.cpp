// F32, F16 or BF16 rows straight from memory with f32 arithmetic: decode and small batches. The conversion to f32 is
// exact, and a row's result does not depend on m.
#include <algorithm>

#include "kernels/linear/estimate.h"
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

// Rows of weights per tile. Sixteen accumulators keep the FMA pipes busy and fit the registers. Decode (m = 1) reads
// eight rows in turn, one cache line of each, to keep more memory requests in flight.
template <int m>
constexpr int kTileRows = m == 1 ? 8 : 2;

// 2 * kLanes consecutive weights. `second` is scaled by kSecondUnit.
struct Pair {
  F32Vec first, second;
};

#if HWY_TARGET == HWY_NEON
template <DType dtype>
constexpr float kSecondUnit = dtype == DType::F16 ? 0x1p-112f : 1.0f;
#else
template <DType dtype>
constexpr float kSecondUnit = 1.0f;
#endif

template <DType dtype>
HWY_INLINE Pair load_pair(const std::byte* p) {
#if HWY_TARGET == HWY_NEON
  if constexpr (dtype != DType::F32) {
    const uint16x8_t bits = vld1q_u16(reinterpret_cast<const uint16_t*>(p));
    if constexpr (dtype == DType::BF16) {
      return {F32Vec(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16))),
              F32Vec(vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16)))};
    }
    // Only one of four vector pipes converts f16. The second half avoids it: shifted bits give the number with an
    // exponent that is 112 too small.
    const int32x4_t moved = vshll_high_n_s16(vreinterpretq_s16_u16(bits), 13);
    const uint32x4_t kept = vandq_u32(vreinterpretq_u32_s32(moved), vdupq_n_u32(0x8fffe000u));
    return {F32Vec(vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits)))), F32Vec(vreinterpretq_f32_u32(kept))};
  }
#endif
  return {load_plain<dtype>(p), load_plain<dtype>(p + kLanes * kElementBytes<dtype>)};
}

// Dot product of the last elements of a row, fewer than 2 * kLanes.
template <DType dtype>
float rest_of_dot(const float* x, const std::byte* w, int64_t count) {
  float sum = 0;
  for (int64_t at = 0; at < count; at += kLanes) {
    const int64_t some = std::min(kLanes, count - at);
    const auto* rest = reinterpret_cast<const std::byte*>(x + at);
    sum += sum_of(hn::Mul(load_some<DType::F32>(rest, some), load_some<dtype>(w + at * kElementBytes<dtype>, some)));
  }
  return sum;
}

template <DType dtype>
constexpr float kLift = kSecondUnit<dtype> < 1 ? 0x1p64f : 1.0f;  // keeps small products out of the subnormal range

template <int m>
struct Tile {
  const std::byte* w[kTileRows<m>];
  const float* x[m];
};

// Multiplies `pairs` * 2 * kLanes elements of each row from k on.
template <DType dtype, int m, int pairs>
HWY_INLINE void add_pairs(const Tile<m>& tile, int64_t k, F32Vec (&acc)[kTileRows<m>][m][2]) {
  F32Vec xs[m][pairs][2];
  MR_UNROLL for (int i = 0; i < m; ++i) {
    MR_UNROLL for (int p = 0; p < pairs; ++p) {
      xs[i][p][0] = load(tile.x[i] + k + 2 * p * kLanes);
      xs[i][p][1] = load(tile.x[i] + k + (2 * p + 1) * kLanes);
      if constexpr (kLift < dtype >> 1) xs[i][p][1] = hn::Mul(xs[i][p][1], broadcast(kLift<dtype>));
    }
  }
  MR_UNROLL for (int j = 0; j < kTileRows<m>; ++j) {
    MR_UNROLL for (int p = 0; p < pairs; ++p) {
      const Pair ws = load_pair<dtype>(tile.w[j] + (k + 2 * p * kLanes) * kElementBytes<dtype>);
      MR_UNROLL for (int i = 0; i < m; ++i) {
        acc[j][i][0] = hn::MulAdd(xs[i][p][0], ws.first, acc[j][i][0]);
        acc[j][i][1] = hn::MulAdd(xs[i][p][1], ws.second, acc[j][i][1]);
      }
    }
  }
}

// The next tile's rows follow this tile's in memory. They are prefetched sequentially while this tile is read across
// rows.
HWY_INLINE void prefetch_tile_after(const std::byte* p) {
  MR_UNROLL for (int line = 0; line < kTileRows<1>; ++line) __builtin_prefetch(p + 64 * line, 0, 2);
}

// Multiplies all whole pairs of vectors. Returns the number of elements.
template <DType dtype, int m>
HWY_INLINE int64_t dot_tile(const Tile<m>& tile, int64_t k, float (&sums)[kTileRows<m>][m]) {
  constexpr int kPairs = m > 1 ? 1 : static_cast<int>(std::max<int64_t>(1, 64 / (2 * kLanes * kElementBytes<dtype>)));
  F32Vec acc[kTileRows<m>][m][2];
  MR_UNROLL for (int j = 0; j < kTileRows<m>; ++j) {
    MR_UNROLL for (int i = 0; i < m; ++i) acc[j][i][0] = acc[j][i][1] = hn::Zero(kF32);
  }
  int64_t at = 0;
  for (; at + 2 * kLanes * kPairs <= k; at += 2 * kLanes * kPairs) {
    if constexpr (m == 1) prefetch_tile_after(tile.w[0] + kTileRows<m> * (k + at) * kElementBytes<dtype>);
    add_pairs<dtype, m, kPairs>(tile, at, acc);
  }
  for (; at + 2 * kLanes <= k; at += 2 * kLanes) add_pairs<dtype, m, 1>(tile, at, acc);
  MR_UNROLL for (int j = 0; j < kTileRows<m>; ++j) {
    MR_UNROLL for (int i = 0; i < m; ++i) {
      const F32Vec second = hn::Mul(acc[j][i][1], broadcast(1 / (kSecondUnit<dtype> * kLift<dtype>)));
      sums[j][i] = sum_of(hn::Add(acc[j][i][0], second));
    }
  }
  return at;
}

template <DType dtype, int m>
void multiply_tile(const LinearArgs& args, int64_t n, int64_t first_m) {
  constexpr int kRows = kTileRows<m>;
  const LinearWeights& weights = *args.weights;
  const int64_t valid = std::min<int64_t>(kRows, weights.n - n), k = weights.k;
  Tile<m> tile;
  for (int j = 0; j < kRows; ++j) {
    tile.w[j] = weights.data + (n + std::min<int64_t>(j, valid - 1)) * k * kElementBytes<dtype>;
  }
  for (int i = 0; i < m; ++i) tile.x[i] = args.x.row<float>(first_m + i);
  float sums[kRows][m];
  const int64_t at = dot_tile<dtype, m>(tile, k, sums);
  for (int64_t j = 0; j < valid; ++j) {
    for (int i = 0; i < m; ++i) {
      float sum = sums[j][i];
      if (at < k) sum += rest_of_dot<dtype>(tile.x[i] + at, tile.w[j] + at * kElementBytes<dtype>, k - at);
      float& y = args.y.row<float>(first_m + i)[n + j];
      y = (args.accumulate ? y : 0) + (sum + (args.bias != nullptr ? args.bias[n + j] : 0));
    }
  }
}

constexpr int64_t kRowsAtOnce =
    kStripRows;  // rows of weights that stay in the L1 cache while all rows of x pass over them

template <DType dtype>
void run_rows(const LinearArgs& args, int64_t n_begin, int64_t n_end) {
  for (int64_t n = n_begin; n < n_end; n += kRowsAtOnce) {
    const int64_t end = std::min(n + kRowsAtOnce, n_end);
    int64_t i = 0;
    for (; i + 4 <= args.x.rows; i += 4) {
      for (int64_t j = n; j < end; j += kTileRows<4>) multiply_tile<dtype, 4>(args, j, i);
    }
    for (; i < args.x.rows; ++i) multiply_tile<dtype, 1>(args, n, i);
  }
}

class PlainLinear final : public RowsKernel {
 public:
  std::string_view name() const override { return "plain_" MR_TARGET_NAME; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return p.layout == rows_layout().name() && !is_quantized(p.format) && hardware.isa.has(kTargetIsa);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    // Rows of x are processed in groups of four; leftover rows do not share weight loads.
    constexpr double kShareOfPeak = 0.45, kRowsOfASingleOne = 1.8;
    const double rows = double(p.m / 4 * 4) + kRowsOfASingleOne * double(p.m % 4);
    const double weights = double(p.n) * double(p.k);
    const double compute_us = 2e-3 * weights * rows / (kShareOfPeak * hardware.ceilings.f32_gflops);
    return hardware.ceilings.region_us + std::max(reading_us(p, kRowsRead, hardware), compute_us);
  }

 private:
  void multiply_rows(const Args& args, int64_t n_begin, int64_t n_end) const override {
    if (args.weights->format == DType::F32) return run_rows<DType::F32>(args, n_begin, n_end);
    if (args.weights->format == DType::F16) return run_rows<DType::F16>(args, n_begin, n_end);
    run_rows<DType::BF16>(args, n_begin, n_end);
  }
};

}  // namespace

const RowsKernel* plain_linear() {
  static const PlainLinear kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

std::vector<const RowsKernel*> plain_linear_kernels() { return {MR_EACH_TARGET(plain_linear)}; }

}  // namespace millrace
#endif
