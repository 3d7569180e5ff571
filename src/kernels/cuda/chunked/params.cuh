// Recurrences over the rows t of a sequence, for each head with q, k, v of the row and the state S
// [key_dim][value_dim]:
//   S *= exp(log_decay)
//   S += k outer x, with x = v (SSD), or x = weight * (v - S^T k) (delta rule), which the chunked form solves for
//   out = S^T q
// run in chunks of kChunk rows. prepare_chunks() computes for all chunks in parallel what does not depend on S, and
// writes a record for each chunk and head. advance_chunks() then goes through the chunks of a sequence with S in
// registers. With g[t] the sum of log_decay up to row t of the chunk, L[t][s] = exp(g[t] - g[s]) for s < t and
//   T = (I + diag(weight) (L * (K K^T)))^-1 diag(weight)
// a chunk computes (SSD: X = V):
//   X = T (V - diag(exp(g)) K S),  out = diag(exp(g)) Q S + (L' * (Q K^T)) X,  S = exp(g[end]) S + (diag(exp(g[end] -
//   g)) K)^T X
// where L' has ones on its diagonal. Inputs are bf16. f32 operands of the products (S, X, T, ...) are sums of two bf16
// numbers, so that results are as accurate as those of the f32 kernels.
#pragma once

#include "kernels/cuda/chunked/pieces.h"
#include "kernels/cuda/values.cuh"

namespace millrace::chunked {

struct ChunkedParams {
  GpuMatrix q, k, v, out;  // q, k, v: bf16; rows and heads begin at multiples of 16 bytes
  int heads, key_heads, key_dim, value_dim;
  bool tiled;         // head h uses key head h % key_heads; otherwise consecutive heads share one
  const float* skip;  // [heads]: out += skip * v; null: nothing
  std::byte* state;   // the record of slot s is at state + s * stride: f32 [heads][key_dim][value_dim]
  size_t stride;
  const SliceTables::Slice* slices;
  const int32_t* slots;
  std::byte* records;  // [chunks][heads]
  Pieces pieces;

  __device__ int key_head(int h) const { return tiled ? h % key_heads : h / (heads / key_heads); }
};

// What prepare_chunks() passes on for one chunk and head; offsets in bytes. Squares are bf16 [kChunk][kChunk], a high
// and a low part of each; zeros above the diagonal.
template <bool kSolved>
struct ChunkRecord {
  static constexpr size_t kSquare = kChunk * kChunk * 2;
  static constexpr size_t kScores = 0;             // L' * (Q K^T)
  static constexpr size_t kInverse = 2 * kSquare;  // T
  // f32 [kChunk] each: factors of the rows of Q S, of K S, and of K; then the factor of S
  static constexpr size_t kFactors = kSolved ? 4 * kSquare : 2 * kSquare, kFactorBytes = (3 * kChunk + 4) * 4;
  static constexpr size_t kBytes = kFactors + kFactorBytes;
};

}  // namespace millrace::chunked
