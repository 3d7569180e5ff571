// Matrix products of bf16 pairs with sums in f32 (BFMMLA), for the blocked attention of prefill.
//
// One instruction multiplies two rows of A by two rows of B over four elements. So a matrix is packed as pairs of rows,
// four elements of one row and then four of the other: [row / 2][element / 4][2][4], `pair_stride` numbers from pair to
// pair.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// Packs `rows` rows (an even number) of `cols` numbers (a multiple of eight), rounded to bf16.
void pack_pairs(const float* a, int64_t stride, int64_t rows, int64_t cols, uint16_t* out, int64_t pair_stride);

// The same for rows of F16 or BF16 wherever they lie.
void pack_pairs(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                int64_t pair_stride);

// Packs the transpose: pairs of columns, four rows at a time. `count` rows, a multiple of four; cols a multiple of
// eight.
void pack_column_pairs(DType dtype, const std::byte* const* rows, int64_t count, int64_t cols, uint16_t* out,
                       int64_t pair_stride);

// C[i][j] (+)= sum over k of A[i][k] B[j][k]; rows and cols are multiples of eight, depth of four.
void multiply_pairs(const uint16_t* a, int64_t a_pair_stride, const uint16_t* b, int64_t b_pair_stride, int64_t rows,
                    int64_t cols, int64_t depth, float* c, int64_t c_stride, bool accumulate);

}  // namespace millrace
