// Reads rows of plain formats, FP8 or Q8_0 as f32 vectors: keys, values and embeddings.

#if defined(MILLRACE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_ROWS_INL_H
#undef MILLRACE_ROWS_INL_H
#else
#define MILLRACE_ROWS_INL_H
#endif

#include "kernels/simd/simd-inl.h"
#include "tensor/blocks.h"
#include "tensor/kv_dtype.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// E4M3 numbers other than NaN. Subnormals are read as normal numbers of the next exponent, whose leading one is
// subtracted: the result does not depend on the CPU's denormal mode.
HWY_INLINE F32Vec load_e4m3(const uint8_t* x) {
  const hn::RebindToUnsigned<F32> d32;
  const hn::Rebind<uint8_t, F32> d8;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d8, x));
  const auto magnitude = hn::ShiftLeft<20>(hn::And(bits, hn::Set(d32, 0x7fu)));
  const auto sign = hn::ShiftLeft<24>(hn::And(bits, hn::Set(d32, 0x80u)));
  const auto normal = hn::BitCast(kF32, hn::Add(magnitude, hn::Set(d32, uint32_t{127 - 7} << 23)));
  const auto subnormal =
      hn::Sub(hn::BitCast(kF32, hn::Add(magnitude, hn::Set(d32, uint32_t{127 - 6} << 23))), broadcast(0x1p-6f));
  const auto is_small = hn::RebindMask(kF32, hn::Lt(magnitude, hn::Set(d32, uint32_t{1} << 23)));
  return hn::Or(hn::IfThenElse(is_small, subnormal, normal), hn::BitCast(kF32, sign));
}

// Elements [i, i + kLanes) of a row; i is a multiple of kLanes.
template <DType dtype>
HWY_INLINE F32Vec row_at(const std::byte* row, int64_t i) {
  if constexpr (dtype == DType::F32) return load(reinterpret_cast<const float*>(row) + i);
  if constexpr (dtype == DType::F16) return load_f16(reinterpret_cast<const uint16_t*>(row) + i);
  if constexpr (dtype == DType::BF16) return load_bf16(reinterpret_cast<const uint16_t*>(row) + i);
  if constexpr (dtype == DType::Q8_0) {
    const auto* block = reinterpret_cast<const BlockQ8_0*>(row) + i / 32;
    return hn::Mul(load_i8(block->qs + i % 32), broadcast_f16(block->d));
  }
  if constexpr (dtype == kFp8) return load_e4m3(reinterpret_cast<const uint8_t*>(row) + i);
}

// Elements [i, n) of a row of n, fewer than kLanes, padded with zeros. Reads no byte beyond the row.
template <DType dtype>
HWY_INLINE F32Vec row_end(const std::byte* row, int64_t i, int64_t n) {
  if constexpr (dtype == DType::Q8_0) return row_at<dtype>(row, i);  // rows are whole blocks: never called
  constexpr size_t kBytes = dtype == DType::F32 ? 4 : dtype == kFp8 ? 1 : 2;
  alignas(64) std::byte padded[kLanes * kBytes] = {};
  std::memcpy(padded, row + static_cast<size_t>(i) * kBytes, static_cast<size_t>(n - i) * kBytes);
  return row_at<dtype>(padded, 0);
}

// Converts a row to f32; `out` is padded with zeros to a multiple of kLanes.
template <DType dtype>
void widen_row(const std::byte* row, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(row_at<dtype>(row, i), out + i);
  if (i < n) store(row_end<dtype>(row, i, n), out + i);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_ROWS_INL_H
