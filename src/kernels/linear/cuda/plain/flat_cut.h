// Tiling of a flat GEMM on Hopper (flat_wgmma.cu) into blocks, and its cost.
#pragma once

#include "kernels/linear/cuda/families.h"

namespace millrace {

inline constexpr int kDepth = 64;             // elements of K per stage: one row of the 128-byte swizzle
inline constexpr int kRowBytes = kDepth * 2;  // per row of a stage
inline constexpr int kMaxStages = 16, kMaxTokens = 256;

// How a variant uses a multiprocessor. By default a block takes half of the shared memory, so that a block of the next
// kernel can fill its pipeline while this one drains; many tokens need all of it.
inline constexpr int kHalfKilobytes = 110, kAllKilobytes = 208, kMostKilobytes = 225;
struct Variant {
  int stages;                 // maximum
  int least_rows, most_rows;  // rows per block for up to 64 tokens; beyond 64 rows, two warpgroups share them
  int kilobytes = kHalfKilobytes;
  int most_splits = 8;
};

// Rows per block and splits of K.
struct Cut {
  int rows, splits;
  double us;
  bool alone = false;  // one block per multiprocessor
  int lower = 0;       // number of blocks, at the end of the grid, with one tile less
};

int tokens_of(int64_t m);  // tokens that a block's products are compiled for

// Space behind the last stage. Products of rows that the block does not have read beyond it.
int bytes_beyond(int tokens, int rows);
// Space for the sums that the other block of a pair sends. It is separate because this block may still read its stages.
int bytes_received(int tokens, int rows, int splits);
int stages_of(const Variant& variant, int tokens, int rows, int splits);
inline int groups_of(int tokens, int rows) { return tokens > 64 || rows > 64 ? 2 : 1; }

Cut choose_cut(const CudaLinearProblem& problem, const CudaLimits& limits, const Variant& variant);

}  // namespace millrace
