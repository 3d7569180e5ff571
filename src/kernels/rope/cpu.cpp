#include "kernels/rope/rope.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE void rotate(F32Vec& a, F32Vec& b, F32Vec cosine, F32Vec sine) {
  const F32Vec x = a, y = b;
  a = hn::NegMulAdd(y, sine, hn::Mul(x, cosine));
  b = hn::MulAdd(x, sine, hn::Mul(y, cosine));
}

void rotate(float& a, float& b, float cosine, float sine) {
  const float x = a, y = b;
  a = x * cosine - y * sine;
  b = y * cosine + x * sine;
}

void rotate_halves(float* x, const float* cosines, const float* sines, int half) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    F32Vec a = load(x + i), b = load(x + half + i);
    rotate(a, b, load(cosines + i), load(sines + i));
    store(a, x + i);
    store(b, x + half + i);
  }
  for (; i < half; ++i) rotate(x[i], x[half + i], cosines[i], sines[i]);
}

void rotate_interleaved(float* x, const float* cosines, const float* sines, int half) {
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    F32Vec a, b;
    hn::LoadInterleaved2(kF32, x + 2 * i, a, b);
    rotate(a, b, load(cosines + i), load(sines + i));
    hn::StoreInterleaved2(a, b, kF32, x + 2 * i);
  }
  for (; i < half; ++i) rotate(x[2 * i], x[2 * i + 1], cosines[i], sines[i]);
}

class SimdRope : public Kernel<RopeOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.isa.has(kTargetIsa); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.heads * p.rotary_dim, 10, hardware);
  }

  void run(const Args& args, const Executor& executor) const override {
    const int half = args.rotary_dim / 2;
    const auto rotate_head = args.style == RopeStyle::Halves ? rotate_halves : rotate_interleaved;
    for_rows(executor, args.x.rows, static_cast<int64_t>(args.heads) * args.rotary_dim,
             [&](int64_t begin, int64_t end) {
               for (int64_t row = begin; row < end; ++row) {
                 const float* cosines = args.angles.row<float>(row);
                 float* x = args.x.row<float>(row);
                 for (int head = 0; head < args.heads; ++head, x += args.head_dim)
                   rotate_head(x, cosines, cosines + half, half);
               }
             });
  }
};

}  // namespace

const Kernel<RopeOp>* rope_kernel() {
  static const SimdRope kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<RopeOp> RopeOp::cpu() { return {MR_EACH_TARGET(rope_kernel), RopeOp::reference()}; }

}  // namespace millrace
#endif
