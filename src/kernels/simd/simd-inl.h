// Common to all SIMD kernels, compiled once per target: the target's name, and f32 vectors from the plain formats.

#if defined(MILLRACE_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_SIMD_INL_H
#undef MILLRACE_SIMD_INL_H
#else
#define MILLRACE_SIMD_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "hardware/isa.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#undef MR_TARGET_NAME
#if HWY_TARGET == HWY_AVX3
#define MR_TARGET_NAME "avx512"
constexpr Isa kTargetIsa = Isa::Avx512;
#elif HWY_TARGET == HWY_AVX2
#define MR_TARGET_NAME "avx2"
constexpr Isa kTargetIsa = Isa::Avx2;
#elif HWY_TARGET == HWY_SSE4
#define MR_TARGET_NAME "sse4"
constexpr Isa kTargetIsa = Isa::Sse4;
#else
#define MR_TARGET_NAME "neon"
constexpr Isa kTargetIsa = Isa::Neon;
#endif

using F32 = hn::ScalableTag<float>;
using F32Vec = hn::Vec<F32>;
constexpr F32 kF32{};
constexpr int64_t kLanes = HWY_LANES(float);

constexpr int64_t padded_to_lanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

HWY_INLINE F32Vec load(const float* p) { return hn::LoadU(kF32, p); }
HWY_INLINE void store(F32Vec v, float* p) { hn::StoreU(v, kF32, p); }
HWY_INLINE F32Vec broadcast(float x) { return hn::Set(kF32, x); }
HWY_INLINE float sum_of(F32Vec v) { return hn::GetLane(hn::SumOfLanes(kF32, v)); }
HWY_INLINE float max_of(F32Vec v) { return hn::GetLane(hn::MaxOfLanes(kF32, v)); }

// Loads kLanes f16 numbers. SSE4 has no conversion instruction: shifts place the bits, and a multiplication corrects
// the exponent, which is exact for subnormals too.
HWY_INLINE F32Vec load_f16(const uint16_t* p) {
#if HWY_TARGET == HWY_SSE4
  const hn::Rebind<uint16_t, F32> d16;
  const hn::RebindToUnsigned<F32> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, p));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(d32, 0x7fffu)));
  const auto scaled = hn::BitCast(d32, hn::Mul(hn::BitCast(kF32, magnitude), broadcast(0x1p112f)));
  const auto beyond = hn::Or(magnitude, hn::Set(d32, 0x7f800000u));  // infinity or NaN
  const auto finite =
      hn::Lt(hn::BitCast(hn::RebindToSigned<F32>(), magnitude), hn::Set(hn::RebindToSigned<F32>(), 0x0f800000));
  return hn::BitCast(kF32, hn::Or(sign, hn::IfThenElse(hn::RebindMask(d32, finite), scaled, beyond)));
#else
  const hn::Rebind<hwy::float16_t, F32> d16;
  return hn::PromoteTo(kF32, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#endif
}

// Broadcasts one f16 number.
HWY_INLINE F32Vec broadcast_f16(uint16_t bits) {
#if HWY_TARGET == HWY_SSE4
  return broadcast(f16_to_f32(bits));
#else
  const hn::Rebind<uint16_t, F32> d16;
  return hn::PromoteTo(kF32, hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), hn::Set(d16, bits)));
#endif
}

HWY_INLINE F32Vec load_bf16(const uint16_t* p) {
#if HWY_TARGET == HWY_NEON
  return F32Vec(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)));  // widens and shifts in one instruction
#else
  const hn::Rebind<uint16_t, F32> d16;
  const hn::RebindToUnsigned<F32> d32;
  return hn::BitCast(kF32, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
#endif
}

HWY_INLINE F32Vec load_i8(const int8_t* p) {
  const hn::Rebind<int8_t, F32> d8;
  const hn::RebindToSigned<F32> d32;
  return hn::ConvertTo(kF32, hn::PromoteTo(d32, hn::LoadU(d8, p)));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_SIMD_INL_H
