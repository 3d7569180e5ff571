// Reads rows of plain formats or Q8_0 as f32 vectors: keys, values and embeddings.

#if defined(MILLRACE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_ROWS_INL_H
#undef MILLRACE_ROWS_INL_H
#else
#define MILLRACE_ROWS_INL_H
#endif

#include "kernels/simd/simd-inl.h"
#include "tensor/blocks.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

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
}

// Elements [i, n) of a row of n, fewer than kLanes, padded with zeros. Reads no byte beyond the row.
template <DType dtype>
HWY_INLINE F32Vec row_end(const std::byte* row, int64_t i, int64_t n) {
  if constexpr (dtype == DType::Q8_0) return row_at<dtype>(row, i);  // rows are whole blocks: never called
  constexpr size_t kBytes = dtype == DType::F32 ? 4 : 2;
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
