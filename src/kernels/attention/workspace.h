// The memory that one attention call works in: scratch for each worker, and the partial results of each chunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/schedule.h"
#include "kernels/attention/scores.h"

namespace millrace {

// Softmax of one query vector in progress: where the maximum stands, and how much weight was summed.
struct SoftmaxState {
  float maximum = kNoScore;
  float total = 0;
};

// Query vectors of a tile in progress. Outputs are sums / total.
struct Partial {
  Piece piece;
  bool used = false;
  SoftmaxState* states = nullptr;  // [vectors]
  float* sums = nullptr;           // [vectors, stride]
};

struct Scratch {
  Partial* whole = nullptr;  // for tiles that no cut goes through
  float* q = nullptr;        // [vectors, stride]
  float* scores = nullptr;   // [vectors, kKvTile]
};

class AttentionWorkspace {
 public:
  AttentionWorkspace(int heads, int kv_heads, int head_dim, int threads)
      : vectors(std::max(kQueryTile, heads / kv_heads)), stride((head_dim + 15) / 16 * 16), threads_(threads) {}

  size_t bytes() const {
    return static_cast<size_t>(threads_) * scratch_bytes() +
           2 * static_cast<size_t>(AttentionSchedule::max_chunks(threads_)) * partial_bytes();
  }

  Scratch scratch(std::byte* base, int worker) const {
    std::byte* at = base + static_cast<size_t>(worker) * scratch_bytes();
    auto* floats = reinterpret_cast<float*>(at + partial_bytes());
    return {partial_at(at), floats, floats + int64_t{vectors} * stride};
  }

  // Of the tile that began before the chunk (side 0), or that ends after it (side 1).
  Partial& partial(std::byte* base, int chunk, int side) const {
    return *partial_at(base + static_cast<size_t>(threads_) * scratch_bytes() +
                       static_cast<size_t>(chunk * 2 + side) * partial_bytes());
  }

  const int vectors, stride;

 private:
  static constexpr size_t kRecord = 128;
  static_assert(sizeof(Partial) <= kRecord);

  Partial* partial_at(std::byte* at) const {
    auto* partial = reinterpret_cast<Partial*>(at);
    partial->states = reinterpret_cast<SoftmaxState*>(at + kRecord);
    partial->sums = reinterpret_cast<float*>(at + kRecord) + 2 * vectors;
    return partial;
  }
  static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }
  size_t partial_bytes() const { return padded(kRecord + static_cast<size_t>(vectors) * (2 + stride) * sizeof(float)); }
  size_t scratch_bytes() const {
    return padded(partial_bytes() + static_cast<size_t>(vectors) * (stride + kKvTile) * sizeof(float));
  }

  const int threads_;
};

}  // namespace millrace
