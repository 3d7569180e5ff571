// Tiles of bf16 numbers in shared memory as operands of tensor cores, and f32 operands as sums of two bf16 numbers.
#pragma once

#include "kernels/attention/cuda/mma.cuh"
#include "kernels/cuda/values.cuh"

namespace millrace::chunked {

// The 16 x 16 part of a tile [rows][kCols] at (row, column), as mma operands.
template <int kCols>
struct Tile {
  static constexpr int kWidth = kCols;
  uint32_t at;  // in shared memory

  // A operand: rows of the result by summed columns.
  __device__ void left(uint32_t (&r)[4], int row, int column) const {
    load_matrices(r, address(row + lane() / 8 % 2 * 8 + lane() % 8, column / 8 + lane() / 16));
  }
  // B operands r[0..1] and r[2..3] for columns row..row+7 and row+8..row+15 of the result: the tile is transposed.
  __device__ void right_transposed(uint32_t (&r)[4], int row, int column) const {
    load_matrices(r, address(row + lane() / 16 * 8 + lane() % 8, column / 8 + lane() / 8 % 2));
  }
  // B operands for columns column..column+7 and column+8..column+15 of the result.
  __device__ void right(uint32_t (&r)[4], int row, int column) const {
    load_matrices_transposed(r, address(row + lane() / 8 % 2 * 8 + lane() % 8, column / 8 + lane() / 16));
  }
  // A operand: columns of the tile are rows of the result.
  __device__ void left_transposed(uint32_t (&r)[4], int row, int column) const {
    load_matrices_transposed(r, address(row + lane() / 16 * 8 + lane() % 8, column / 8 + lane() / 8 % 2));
  }
  __device__ uint32_t address(int row, int piece) const { return at + SwizzledRows<kCols>::offset(row, piece); }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
};

// Copies the first `rows` x `cols` of a matrix with rows of `stride` elements; the rest of the kRows rows is zero.
template <int kCols, int kRows>
__device__ void copy_tile(Tile<kCols> tile, const __nv_bfloat16* from, int64_t stride, int rows, int cols) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * (kCols / 8); i += static_cast<int>(blockDim.x)) {
    const int row = i / (kCols / 8), piece = i % (kCols / 8);
    const bool valid = row < rows && piece * 8 < cols;
    copy_async(tile.address(row, piece), from + (valid ? row * stride + piece * 8 : 0), valid);
  }
}

// x = high + low with 16 bits of mantissa, as A operands.
struct Split {
  uint32_t high[4], low[4];
  __device__ void set(int i, float a, float b) {
    high[i] = pack<__nv_bfloat16>(a, b);
    low[i] = pack<__nv_bfloat16>(a - __uint_as_float(high[i] << 16), b - __uint_as_float(high[i] & 0xffff0000u));
  }
};

}  // namespace millrace::chunked
