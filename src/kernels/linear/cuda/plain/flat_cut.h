// How a flat GEMM on Hopper (flat_wgmma.cu) is cut into blocks, and what that costs.
#pragma once

#include "kernels/linear/cuda/families.h"

namespace millrace {

inline constexpr int kDepth = 64;             // elements of K per stage: one row of the 128-byte swizzle
inline constexpr int kRowBytes = kDepth * 2;  // of a stage
inline constexpr int kMaxStages = 16, kMaxTokens = 256;

// How a variant uses a multiprocessor. Half of its shared memory is for the block of the next kernel, which then fills
// its pipeline while this one drains; many tokens need all of it.
inline constexpr int kHalfKilobytes = 110, kAllKilobytes = 208, kMostKilobytes = 225;
struct Variant {
  int stages;                 // at most
  int least_rows, most_rows;  // of a block, up to 64 tokens; beyond 64 rows two warpgroups share them
  int kilobytes = kHalfKilobytes;
  int most_splits = 8;
};

// Rows of a block, and blocks along K.
struct Cut {
  int rows, splits;
  double us;
  bool alone = false;  // a block has a multiprocessor for itself
  int lower = 0;       // blocks, the last ones, that have a tile less
};

int tokens_of(int64_t m);  // that the products have room for

// Products of rows that a block does not have read on behind its last stage.
int bytes_beyond(int tokens, int rows);
// What the other block of a pair sends: it needs room of its own, since this one may still read its stages.
int bytes_received(int tokens, int rows, int splits);
int stages_of(const Variant& variant, int tokens, int rows, int splits);
inline int groups_of(int tokens, int rows) { return tokens > 64 || rows > 64 ? 2 : 1; }

Cut choose_cut(const CudaLinearProblem& problem, const CudaLimits& limits, const Variant& variant);

}  // namespace millrace
