// Epilogue: bias, accumulation, columns outside the weights or y. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/unroll-inl.h"

// Joined strips are multiplied together even if a piece ends between them. Narrows y so that columns beyond the piece
// are not written.
template <auto multiply>
void within_piece(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  LinearArgs own = args;
  own.y.cols = std::min(args.y.cols, piece.strip_end * kPackedRows);
  multiply(own, x, scratch, piece);
}

MR_INLINE inline int64_t columns_of(const LinearArgs& args) { return std::min(args.weights->n, args.y.cols); }

// Writes eight outputs of row m from column n on. `fresh`: y holds no earlier part of the sum.
inline void write_eight(const LinearArgs& args, int64_t m, int64_t n, __m256 sums, bool fresh) {
  const int64_t count = columns_of(args) - n;
  if (count <= 0) return;
  float* y = args.y.row<float>(m) + n;
  const bool add = args.accumulate || !fresh;
  if (count >= 8) {
    if (fresh && args.bias != nullptr) sums = _mm256_add_ps(sums, _mm256_loadu_ps(args.bias + n));
    if (add) sums = _mm256_add_ps(sums, _mm256_loadu_ps(y));
    return _mm256_storeu_ps(y, sums);
  }
  float each[8];
  _mm256_storeu_ps(each, sums);
  for (int64_t i = 0; i < count; ++i) {
    y[i] = each[i] + (fresh && args.bias != nullptr ? args.bias[n + i] : 0.0f) + (add ? y[i] : 0.0f);
  }
}
