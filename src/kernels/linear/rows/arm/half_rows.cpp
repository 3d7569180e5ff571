#include "kernels/linear/rows/arm/half_rows.h"

#include <arm_neon.h>

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/linear/estimate.h"
#include "kernels/linear/rows/rows.h"

namespace millrace {
namespace {

float half_at(const uint16_t* p) { return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(*p))), 0); }

float dot(const uint16_t* w, const float* x, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += x[i] * half_at(w + i);
  return sum;
}

// Returns the factor that undoes the scaling of x.
float round_to_halves(const float* x, int64_t k, float most, uint16_t* out) {
  float32x4_t largest_of = vdupq_n_f32(0);
  for (int64_t i = 0; i + 4 <= k; i += 4) largest_of = vmaxq_f32(largest_of, vabsq_f32(vld1q_f32(x + i)));
  const float largest = vmaxvq_f32(largest_of);
  const float factor = largest == 0 ? 0.0f : most / largest;  // NaN stays NaN
  for (int64_t i = 0; i + 4 <= k; i += 4) {
    vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vmulq_n_f32(vld1q_f32(x + i), factor))));
  }
  return largest / most;
}

}  // namespace

bool HalfRowsLinear::can_run(const Problem& p, const Hardware& hardware) const {
  return p.layout == rows_layout().name() && p.format == DType::F16 && p.precision == Precision::Fast && p.m == 1 &&
         hardware.isa.has(method_.isa);
}

double HalfRowsLinear::estimate_us(const Problem& p, const Hardware& hardware) const {
  const double weights = double(p.n) * double(p.k);
  const double bytes_us = reading_us(p, kRowsRead, hardware);
  const double compute_us = 2e-3 * weights / (0.7 * method_.products * hardware.ceilings.f32_gflops);
  return hardware.ceilings.region_us + std::max(bytes_us, compute_us);
}

void HalfRowsLinear::run(const Args& args, const Executor& executor) const {
  auto* x = reinterpret_cast<uint16_t*>(executor.workspace);
  const float scale = round_to_halves(args.x.row<float>(0), args.weights->k / 8 * 8, method_.largest_x, x);
  const int64_t tiles = (args.weights->n + kHalfRows - 1) / kHalfRows;
  const int64_t grain = std::max<int64_t>(1, tiles / (16 * executor.pool->size()));
  executor.pool->parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) multiply_tile(args, x, scale, tile * kHalfRows);
  });
}

void HalfRowsLinear::multiply_tile(const Args& args, const uint16_t* x, float scale, int64_t n) const {
  const LinearWeights& weights = *args.weights;
  const int64_t k = weights.k, whole = k / 8 * 8, valid = std::min<int64_t>(kHalfRows, weights.n - n);
  const uint16_t* w[kHalfRows];
  for (int64_t r = 0; r < kHalfRows; ++r) {
    w[r] = reinterpret_cast<const uint16_t*>(weights.data) + (n + std::min(r, valid - 1)) * k;
  }
  float sums[kHalfRows];
  method_.dot(w, x, whole, kHalfRows * k, sums);
  for (int64_t r = 0; r < valid; ++r) {
    const float* exact_x = args.x.row<float>(0);
    float sum = whole > 0 ? sums[r] * scale : 0.0f;
    if (!std::isfinite(sum)) sum = dot(w[r], exact_x, 0, whole);
    sum += dot(w[r], exact_x, whole, k);
    float& y = args.y.row<float>(0)[n + r];
    y = (args.accumulate ? y : 0) + (sum + (args.bias != nullptr ? args.bias[n + r] : 0));
  }
}

}  // namespace millrace
