// exp, tanh and erfc on f32 vectors, each within about 2e-7 relative. The coefficients are minimax fits of the relative
// error.

#if defined(MILLRACE_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_MATH_INL_H
#undef MILLRACE_MATH_INL_H
#else
#define MILLRACE_MATH_INL_H
#endif

#include "kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// x * 2^n for n in [-126, 127] and x in [0.5, 2): adds n to the exponent bits.
HWY_INLINE F32Vec times_power_of_two(F32Vec x, F32Vec n) {
  const hn::RebindToSigned<F32> d32;
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(d32, n));
  return hn::BitCast(kF32, hn::Add(hn::BitCast(d32, x), exponent));
}

enum class Exp2 {
  Accurate,  // within 1.5e-7
  Coarse,    // within 1.1e-4, for weights that are rounded to bf16
};

// p = p * r + c on n vectors.
template <int n>
HWY_INLINE void horner(const F32Vec (&r)[n], float c, F32Vec (&p)[n]) {
  MR_UNROLL for (int i = 0; i < n; ++i) p[i] = hn::MulAdd(p[i], r[i], broadcast(c));
}

// 2^x for x <= 127; 2^-126 for x < -126. Takes n vectors at once to hide latency. Adding 1.5 * 2^23 leaves the nearest
// integer in the low bits of the sum, and a shift moves it to the exponent: CPUs have more pipes for additions than for
// conversions.
template <Exp2 accuracy = Exp2::Accurate, int n>
HWY_INLINE void exp2(F32Vec (&x)[n]) {
  constexpr bool kAccurate = accuracy == Exp2::Accurate;
  const hn::RebindToSigned<F32> d32;
  const F32Vec magic = broadcast(12582912.0f);
  F32Vec shifted[n], p[n];
  MR_UNROLL for (int i = 0; i < n; ++i) x[i] = hn::Max(x[i], broadcast(-126.0f));
  MR_UNROLL for (int i = 0; i < n; ++i) shifted[i] = hn::Add(x[i], magic);
  MR_UNROLL for (int i = 0; i < n; ++i) x[i] = hn::Sub(x[i], hn::Sub(shifted[i], magic));
  MR_UNROLL for (int i = 0; i < n; ++i) p[i] = broadcast(kAccurate ? 0.0013264721492305398f : 0.0550089031457901f);
  if constexpr (kAccurate) {
    horner(x, 0.009671512991189957f, p);
    horner(x, 0.05550733581185341f, p);
  }
  horner(x, kAccurate ? 0.24022242426872253f : 0.2422109693288803f, p);
  horner(x, kAccurate ? 0.6931470036506653f : 0.693282961845398f, p);
  horner(x, 1.0f, p);
  MR_UNROLL for (int i = 0; i < n; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(d32, shifted[i]));
    x[i] = hn::BitCast(kF32, hn::Add(hn::BitCast(d32, p[i]), exponent));
  }
}

HWY_INLINE F32Vec exp2(F32Vec x) {
  F32Vec one[1] = {x};
  exp2(one);
  return one[0];
}

// 2^x for x <= 127; 0 for x < -126.
HWY_INLINE F32Vec exp2_or_zero(F32Vec x) { return hn::IfThenElseZero(hn::Ge(x, broadcast(-126.0f)), exp2(x)); }

// e^x; 0 below e^-87.3, clamped to e^88 above.
HWY_INLINE F32Vec exp(F32Vec x) {
  const F32Vec inside = hn::Min(hn::Max(x, broadcast(-87.3f)), broadcast(88.0f));
  const F32Vec n = hn::Round(hn::Mul(inside, broadcast(1.44269504f)));
  F32Vec r = hn::NegMulAdd(n, broadcast(0.693359375f), inside);  // ln 2 in two parts; n times the first is exact
  r = hn::NegMulAdd(n, broadcast(-2.12194440e-4f), r);
  F32Vec p = broadcast(0.0013814610429108143f);
  p = hn::MulAdd(p, r, broadcast(0.008368710055947304f));
  p = hn::MulAdd(p, r, broadcast(0.04166838899254799f));
  p = hn::MulAdd(p, r, broadcast(0.1666652113199234f));
  p = hn::MulAdd(p, r, broadcast(0.4999999403953552f));
  p = hn::MulAdd(p, hn::Mul(r, r), r);
  p = hn::Add(p, broadcast(1.0f));
  return hn::IfThenElseZero(hn::Ge(x, broadcast(-87.3f)), times_power_of_two(p, n));
}

// Uses a polynomial near zero, where 1 - 2 / (e^2x + 1) would cancel.
HWY_INLINE F32Vec tanh(F32Vec x) {
  const F32Vec magnitude = hn::Abs(x);
  const F32Vec z = hn::Mul(x, x);
  F32Vec p = broadcast(-0.005704978480935097f);
  p = hn::MulAdd(p, z, broadcast(0.020639078691601753f));
  p = hn::MulAdd(p, z, broadcast(-0.05373971164226532f));
  p = hn::MulAdd(p, z, broadcast(0.13331441581249237f));
  p = hn::MulAdd(p, z, broadcast(-0.3333328068256378f));
  const F32Vec near = hn::MulAdd(hn::Mul(p, z), x, x);
  const F32Vec e = exp(hn::Add(magnitude, magnitude));
  const F32Vec far = hn::Sub(broadcast(1.0f), hn::Div(broadcast(2.0f), hn::Add(e, broadcast(1.0f))));
  return hn::IfThenElse(hn::Lt(magnitude, broadcast(0.625f)), near, hn::CopySignToAbs(far, x));
}

// erfc(x) for x >= 0: e^(-x^2) t P(t) with t = 1 / (1 + 0.4 x), accurate until it underflows near x = 9.3.
HWY_INLINE F32Vec erfc_of_positive(F32Vec x) {
  const F32Vec t = hn::Div(broadcast(1.0f), hn::MulAdd(broadcast(0.4f), x, broadcast(1.0f)));
  F32Vec p = broadcast(-0.029594337567687035f);
  p = hn::MulAdd(p, t, broadcast(0.19801321625709534f));
  p = hn::MulAdd(p, t, broadcast(-0.4988114833831787f));
  p = hn::MulAdd(p, t, broadcast(0.547435462474823f));
  p = hn::MulAdd(p, t, broadcast(-0.2843666970729828f));
  p = hn::MulAdd(p, t, broadcast(0.27206623554229736f));
  p = hn::MulAdd(p, t, broadcast(0.1296796053647995f));
  p = hn::MulAdd(p, t, broadcast(0.2149191051721573f));
  p = hn::MulAdd(p, t, broadcast(0.22495202720165253f));
  p = hn::MulAdd(p, t, broadcast(0.22570690512657166f));
  return hn::Mul(exp(hn::Neg(hn::Mul(x, x))), hn::Mul(p, t));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_MATH_INL_H
