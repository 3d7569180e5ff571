// Tiles of bf16 numbers in shared memory as operands of tensor cores, and f32 operands as sums of two bf16 numbers.
#pragma once

#include "kernels/attention/cuda/mma.cuh"
#include "kernels/cuda/chunked/pieces.h"
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

// A tile [kChunk][kCols] as panels of 64 columns, as which warpgroup products read it. One panel is a Tile<64>.
template <int kCols>
struct Panels {
  static constexpr int kWidth = kCols;
  static constexpr uint32_t kPanelBytes = kChunk * 128;
  uint32_t at;  // in shared memory

  __device__ uint32_t address(int row, int piece) const {
    return at + static_cast<uint32_t>(piece / 8) * kPanelBytes + SwizzledRows<64>::offset(row, piece % 8);
  }
};

// Copies the first `rows` x `cols` of a matrix with rows of `stride` elements; the rest of the kChunk rows is zero. By
// kThreads threads that begin at a multiple of kThreads.
template <int kThreads, class AnyTile>
__device__ void copy_tile(AnyTile tile, const __nv_bfloat16* from, int64_t stride, int rows, int cols) {
  constexpr int kPieces = AnyTile::kWidth / 8, kStep = kThreads / kPieces;  // pieces of 16 bytes
  const int thread = static_cast<int>(threadIdx.x) % kThreads, piece = thread % kPieces, first = thread / kPieces;
  const bool inside = piece * 8 < cols;
  const __nv_bfloat16* at = from + first * stride + piece * 8;
#pragma unroll
  for (int row = 0; row < kChunk; row += kStep) {
    const bool valid = inside && first + row < rows;
    copy_async(tile.address(first + row, piece), valid ? at + row * stride : from, valid);
  }
}

// x = high + low with 16 bits of mantissa, as an A operand.
struct Split {
  uint32_t high[4], low[4];
  __device__ void set(int i, float a, float b) {
    high[i] = pack<__nv_bfloat16>(a, b);
    low[i] = pack<__nv_bfloat16>(a - __uint_as_float(high[i] << 16), b - __uint_as_float(high[i] & 0xffff0000u));
  }
};

// sums[i] += left * right[i] for kCount pairs of B operands. Products that depend on each other lie kCount * 2 apart.
template <int kCount>
__device__ void multiply(float (*sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[kCount][4],
                         int from = 0) {
#pragma unroll
  for (int pair = 0; pair < kCount; ++pair) {
    if (pair < from) continue;
#pragma unroll
    for (int n = 0; n < 2; ++n)
      mma<__nv_bfloat16>(sums[2 * pair + n], left, right[pair][2 * n], right[pair][2 * n + 1]);
  }
}

}  // namespace millrace::chunked
