// Workspace of one attention call: scratch memory per worker, and the partial results of each chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/schedule.h"

namespace millrace {

// Distance between the scores of two query vectors: kernels may write up to seven beyond a tile.
constexpr int64_t kScoreStride = kKvTile + 16;

// State of the query vectors of a tile: row by row, all heads of the tile in each. Outputs are sums / totals.
struct Partial {
  Piece piece;
  bool used = false;
  float* maxima = nullptr;  // [vectors]: maximum that the weights are relative to
  float* totals = nullptr;  // [vectors]: sums of the weights
  float* sums = nullptr;    // [vectors, stride]: sums of the weighted values
};

struct Scratch {
  Partial* whole = nullptr;     // for tiles that are not cut
  float* q = nullptr;           // [vectors, stride], or transposed
  float* scores = nullptr;      // [vectors, kScoreStride], or transposed
  float* keys = nullptr;        // [stride, kKvTile]: a tile of keys, transposed
  float* values = nullptr;      // [kKvTile, stride]
  float* factors = nullptr;     // [vectors]: largest scores of a tile, or factors of its sums
  uint16_t* weights = nullptr;  // [vectors, kKvTile] in bf16
};

class AttentionWorkspace {
 public:
  AttentionWorkspace(int heads, int head_dim, int query_tile, int threads)
      : vectors(padded(std::max(query_tile, heads))), stride(padded(head_dim)), threads_(threads) {}

  size_t bytes() const {
    return static_cast<size_t>(threads_) * scratch_bytes() +
           2 * static_cast<size_t>(AttentionSchedule::max_chunks(threads_)) * partial_bytes();
  }

  // Bytes of one worker's Scratch.
  size_t scratch_bytes() const {
    return partial_bytes() +
           static_cast<size_t>(vectors * (stride + kScoreStride + 1 + kKvTile / 2) + 2 * stride * kKvTile) *
               sizeof(float);
  }

  Scratch scratch(std::byte* base, int worker) const {
    std::byte* at = base + static_cast<size_t>(worker) * scratch_bytes();
    Scratch scratch{partial_at(at), reinterpret_cast<float*>(at + partial_bytes())};
    scratch.scores = scratch.q + vectors * stride;
    scratch.keys = scratch.scores + vectors * kScoreStride;
    scratch.values = scratch.keys + stride * kKvTile;
    scratch.factors = scratch.values + stride * kKvTile;
    scratch.weights = reinterpret_cast<uint16_t*>(scratch.factors + vectors);
    return scratch;
  }

  // Partial result of the tile that began before the chunk (side 0), or that ends after it (side 1).
  Partial& partial(std::byte* base, int chunk, int side) const {
    return *partial_at(base + static_cast<size_t>(threads_) * scratch_bytes() +
                       static_cast<size_t>(chunk * 2 + side) * partial_bytes());
  }

  const int64_t vectors, stride;  // both padded, so that no vector access exceeds the buffers

 private:
  static constexpr size_t kRecord = 128;
  static_assert(sizeof(Partial) <= kRecord);

  static int padded(int n) { return (n + 15) / 16 * 16; }

  Partial* partial_at(std::byte* at) const {
    auto* partial = reinterpret_cast<Partial*>(at);
    partial->maxima = reinterpret_cast<float*>(at + kRecord);
    partial->totals = partial->maxima + vectors;
    partial->sums = partial->totals + vectors;
    return partial;
  }
  size_t partial_bytes() const { return kRecord + static_cast<size_t>(vectors * (2 + stride)) * sizeof(float); }

  const int threads_;
};

}  // namespace millrace
