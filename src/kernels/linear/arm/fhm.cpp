// F16 rows in place times one row of x, for decode: products of halves are added in f32 (FMLAL), so that no weight is
// converted. x is rounded to f16, scaled by its largest element so that nothing overflows.
#include "kernels/linear/arm/fhm.h"

#include <algorithm>

#include "kernels/linear/estimate.h"
#include "kernels/linear/rows/rows.h"
#include "kernels/linear/rows8/target.h"
#include "kernels/simd/targets.h"

namespace millrace {
namespace {

constexpr int kRows = 8;  // of weights that are read side by side

}  // namespace
}  // namespace millrace

MR_BEGIN_TARGET("arch=armv8.2-a+fp16+fp16fml", "fullfp16,fp16fml")
namespace millrace {
namespace {

// In assembly for the same reasons as in attention/arm/half_products.cpp.
inline void add_products(float32x4_t (&sums)[2], uint16x8_t a, uint16x8_t b) {
  asm volatile("fmlal %0.4s, %1.4h, %2.4h" : "+w"(sums[0]) : "w"(a), "w"(b));
  asm volatile("fmlal2 %0.4s, %1.4h, %2.4h" : "+w"(sums[1]) : "w"(a), "w"(b));
}

// The first k elements of kRows rows, k being a multiple of eight. While these rows are read across, what lies `ahead`
// of the first one is fetched in the order of memory.
void dot_rows(const uint16_t* const (&w)[kRows], const uint16_t* x, int64_t k, int64_t ahead, float (&sums)[kRows]) {
  float32x4_t acc[kRows][2];
  MR_UNROLL for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = vdupq_n_f32(0);
  for (int64_t i = 0; i < k; i += 8) {
    const uint16x8_t xs = vld1q_u16(x + i);
    MR_UNROLL for (int line = 0; line < kRows / 4; ++line)
        __builtin_prefetch(w[0] + ahead + kRows * i + 32 * line, 0, 2);
    MR_UNROLL for (int r = 0; r < kRows; ++r) add_products(acc[r], vld1q_u16(w[r] + i), xs);
  }
  MR_UNROLL for (int r = 0; r < kRows; ++r) sums[r] = vaddvq_f32(vaddq_f32(acc[r][0], acc[r][1]));
}

}  // namespace
}  // namespace millrace
MR_END_TARGET

namespace millrace {
namespace {

float half_at(const uint16_t* p) { return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(*p))), 0); }

// Returns what the products have to be multiplied with.
float round_to_halves(const float* x, int64_t k, uint16_t* out) {
  constexpr float kLargest = 1024;  // far from where halves end in both directions
  float32x4_t most = vdupq_n_f32(0);
  for (int64_t i = 0; i + 4 <= k; i += 4) most = vmaxq_f32(most, vabsq_f32(vld1q_f32(x + i)));
  const float largest = vmaxvq_f32(most);
  const float factor = largest == 0 ? 0.0f : kLargest / largest;  // a NaN stays one
  for (int64_t i = 0; i + 4 <= k; i += 4) {
    vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vmulq_n_f32(vld1q_f32(x + i), factor))));
  }
  return largest / kLargest;
}

class FhmLinear : public LinearKernel {
 public:
  std::string_view name() const override { return "gemv_fhm"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return p.layout == rows_layout().name() && p.format == DType::F16 && p.precision == Precision::Fast && p.m == 1 &&
           hardware.isa.has(Isa::Fhm);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const double weights = double(p.n) * double(p.k);
    const double bytes_us = reading_us(p, kRowsRead, hardware);
    const double compute_us = 2e-3 * weights / (0.7 * hardware.ceilings.f32_gflops);
    return hardware.ceilings.region_us + std::max(bytes_us, compute_us);
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return static_cast<size_t>(p.k) * 2; }

  void run(const Args& args, const Executor& executor) const override {
    auto* x = reinterpret_cast<uint16_t*>(executor.workspace);
    const int64_t whole = args.weights->k / 8 * 8;
    const float scale = round_to_halves(args.x.row<float>(0), whole, x);
    const int64_t tiles = (args.weights->n + kRows - 1) / kRows;
    const int64_t grain = std::max<int64_t>(1, tiles / (16 * executor.pool->size()));
    executor.pool->parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) multiply_tile(args, x, scale, tile * kRows);
    });
  }

 private:
  static void multiply_tile(const Args& args, const uint16_t* x, float scale, int64_t n) {
    const LinearWeights& weights = *args.weights;
    const int64_t k = weights.k, whole = k / 8 * 8, valid = std::min<int64_t>(kRows, weights.n - n);
    const uint16_t* w[kRows];
    for (int64_t r = 0; r < kRows; ++r) {
      w[r] = reinterpret_cast<const uint16_t*>(weights.data) + (n + std::min(r, valid - 1)) * k;
    }
    float sums[kRows];
    dot_rows(w, x, whole, kRows * k, sums);
    for (int64_t r = 0; r < valid; ++r) {
      float sum = whole > 0 ? sums[r] * scale : 0.0f;
      for (int64_t i = whole; i < k; ++i) sum += args.x.row<float>(0)[i] * half_at(w[r] + i);
      float& y = args.y.row<float>(0)[n + r];
      y = (args.accumulate ? y : 0) + (sum + (args.bias != nullptr ? args.bias[n + r] : 0));
    }
  }
};

}  // namespace

const LinearKernel* fhm_linear() {
  static const FhmLinear kernel;
  return &kernel;
}

}  // namespace millrace
