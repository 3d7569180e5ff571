// Products with A and B that the kernels of low-rank adapters share.

#if defined(MILLRACE_LORA_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_LORA_INL_H
#undef MILLRACE_LORA_INL_H
#else
#define MILLRACE_LORA_INL_H
#endif

#include <algorithm>

#include "kernels/lora/lora.h"
#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

constexpr int64_t kTile = 4;       // rows of x, and rows of A, that share loads
constexpr int64_t kColumns = 512;  // of y, for one task
constexpr int64_t kVectors = 4;    // of y, in registers

// The dot products of R rows of x and J rows of A, which begin at `a`. Each has one accumulator, whatever R and J are.
template <DType format, int R, int J>
void dots(const float* const* x, const std::byte* a, int64_t k, int64_t j, float* const* out) {
  const size_t a_bytes = row_bytes(format, k);
  F32Vec sums[R][J];
  for (auto& of_row : sums) std::fill_n(of_row, J, hn::Zero(kF32));
  const auto add = [&](auto load_x, auto load_a) HWY_ATTR {
    F32Vec as[J];
    for (int i = 0; i < J; ++i) as[i] = load_a(a + static_cast<size_t>(j + i) * a_bytes);
    for (int r = 0; r < R; ++r) {
      const F32Vec of_x = load_x(reinterpret_cast<const std::byte*>(x[r]));
      for (int i = 0; i < J; ++i) sums[r][i] = hn::MulAdd(of_x, as[i], sums[r][i]);
    }
  };
  int64_t c = 0;
  for (; c + kLanes <= k; c += kLanes) {
    add([&](const std::byte* from) HWY_ATTR { return row_at<DType::F32>(from, c); },
        [&](const std::byte* from) HWY_ATTR { return row_at<format>(from, c); });
  }
  if (c < k) {
    add([&](const std::byte* from) HWY_ATTR { return row_end<DType::F32>(from, c, k); },
        [&](const std::byte* from) HWY_ATTR { return row_end<format>(from, c, k); });
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < J; ++i) out[r][j + i] = sum_of(sums[r][i]);
  }
}

// out[r][begin .. end) = those rows of A times x[r].
template <DType format, int R>
void dots_of_rows(const float* const* x, const std::byte* a, int64_t k, int64_t begin, int64_t end, float* const* out) {
  int64_t j = begin;
  for (; j + kTile <= end; j += kTile) dots<format, R, kTile>(x, a, k, j, out);
  for (; j < end; ++j) dots<format, R, 1>(x, a, k, j, out);
}

// The same for `count` rows of x, up to kTile.
template <DType format>
void shrink_rows(const float* const* x, int64_t count, const std::byte* a, int64_t k, int64_t begin, int64_t end,
                 float* const* out) {
  if (count == kTile) return dots_of_rows<format, kTile>(x, a, k, begin, end, out);
  for (int64_t r = 0; r < count; ++r) dots_of_rows<format, 1>(x + r, a, k, begin, end, out + r);
}

// y[begin .. end) += scale * B inner, for columns within one part.
template <DType format>
void expand_part(const std::byte* b, int64_t cols, int64_t rank, const float* inner, float scale, int64_t begin,
                 int64_t end, float* y) {
  const size_t b_bytes = row_bytes(format, cols);
  const F32Vec factor = broadcast(scale);
  int64_t c = begin;
  for (; c + kVectors * kLanes <= end; c += kVectors * kLanes) {
    F32Vec sums[kVectors];
    std::fill_n(sums, kVectors, hn::Zero(kF32));
    for (int64_t j = 0; j < rank; ++j) {
      const F32Vec t = broadcast(inner[j]);
      const std::byte* row = b + static_cast<size_t>(j) * b_bytes;
      for (int v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(t, row_at<format>(row, c + v * kLanes), sums[v]);
    }
    for (int v = 0; v < kVectors; ++v) store(hn::MulAdd(factor, sums[v], load(y + c + v * kLanes)), y + c + v * kLanes);
  }
  for (; c < end; c += kLanes) {
    const int64_t count = std::min(kLanes, end - c);
    F32Vec sum = hn::Zero(kF32);
    for (int64_t j = 0; j < rank; ++j)
      sum = hn::MulAdd(broadcast(inner[j]), row_end<format>(b + static_cast<size_t>(j) * b_bytes, c, c + count), sum);
    alignas(64) float values[kLanes];
    store(hn::Mul(factor, sum), values);
    for (int64_t i = 0; i < count; ++i) y[c + i] += values[i];
  }
}

// The columns [begin, end) of one row of y. `b`: where the parts' matrices begin.
template <DType format>
void expand_parts(const LoraWeights& w, const std::byte* b, const float* inner, float scale, int64_t begin, int64_t end,
                  float* y) {
  for (int p = 0; p < w.parts; ++p) {
    const LoraWeights::Part& part = w.part[p];
    const int64_t first = std::max<int64_t>(begin, part.column) - part.column;
    const int64_t last = std::min<int64_t>(end, part.column + part.cols) - part.column;
    if (first >= last || part.rank == 0) continue;
    expand_part<format>(b + row_bytes(format, part.at), part.cols, part.rank, inner + part.first, scale, first, last,
                        y + part.column);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_LORA_INL_H
