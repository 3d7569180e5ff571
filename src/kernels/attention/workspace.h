// The memory that one attention call works in: scratch for each worker, and the partial results of each chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/schedule.h"

namespace millrace {

// The query vectors of a tile in progress: vector r * group + g is row r, head g of the group. Outputs are sums / totals.
struct Partial {
  Piece piece;
  bool used = false;
  float* maxima = nullptr;  // [vectors]: what the weights are relative to
  float* totals = nullptr;  // [vectors]: of the weights
  float* sums = nullptr;    // [vectors, stride]: of the weighted values
};

struct Scratch {
  Partial* whole = nullptr;  // for tiles that no cut goes through
  float* q = nullptr;        // [vectors, stride], or transposed
  float* scores = nullptr;   // [vectors, kKvTile], or transposed
  float* keys = nullptr;     // [stride, kKvTile]: a tile of keys, transposed
  float* values = nullptr;   // [kKvTile, stride]
  float* factors = nullptr;  // [vectors]
};

class AttentionWorkspace {
 public:
  AttentionWorkspace(int heads, int kv_heads, int head_dim, int threads)
      : vectors(padded(std::max(kQueryTile, heads / kv_heads))), stride(padded(head_dim)), threads_(threads) {}

  size_t bytes() const {
    return static_cast<size_t>(threads_) * scratch_bytes() +
           2 * static_cast<size_t>(AttentionSchedule::max_chunks(threads_)) * partial_bytes();
  }

  Scratch scratch(std::byte* base, int worker) const {
    std::byte* at = base + static_cast<size_t>(worker) * scratch_bytes();
    Scratch scratch{partial_at(at), reinterpret_cast<float*>(at + partial_bytes())};
    scratch.scores = scratch.q + int64_t{vectors} * stride;
    scratch.keys = scratch.scores + int64_t{vectors} * kKvTile;
    scratch.values = scratch.keys + int64_t{stride} * kKvTile;
    scratch.factors = scratch.values + int64_t{stride} * kKvTile;
    return scratch;
  }

  // Of the tile that began before the chunk (side 0), or that ends after it (side 1).
  Partial& partial(std::byte* base, int chunk, int side) const {
    return *partial_at(base + static_cast<size_t>(threads_) * scratch_bytes() +
                       static_cast<size_t>(chunk * 2 + side) * partial_bytes());
  }

  const int64_t vectors, stride;  // both padded, so that no vector register reaches beyond

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
  size_t scratch_bytes() const {
    return partial_bytes() +
           static_cast<size_t>(vectors * (stride + kKvTile + 1) + 2 * stride * kKvTile) * sizeof(float);
  }

  const int threads_;
};

}  // namespace millrace
