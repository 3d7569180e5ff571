// How a prompt chunk is cut for materialised latent attention, and the memory of a worker.
#pragma once

#include <algorithm>

#include "base/rounding.h"
#include "kernels/attention/workspace.h"
#include "kernels/latent_prompt/head_matrix.h"

namespace millrace {

// Query rows that share expanded tiles. Their sums and queries stay in the L2 cache.
inline constexpr int kBlockRows = 512;

// How a chunk is cut: each head into so many blocks of rows.
struct RowBlocks {
  int64_t count, rows;

  // More blocks than kBlockRows demands expand the context more often, so only as many as keep the threads busy.
  RowBlocks(int64_t all_rows, int heads, int threads) {
    const int64_t least = ceil_div(all_rows, kBlockRows), most = ceil_div(all_rows, kKvTile);
    count = std::clamp(ceil_div(threads, heads), least, most);
    rows = round_up(ceil_div(all_rows, count), kKvTile);
    count = ceil_div(all_rows, rows);
  }
};

inline constexpr int64_t kWidest = 16;  // elements of a vector

// Memory of a worker, in floats: matrices of a head with padded rows, and a transposed tile of latent rows.
struct HeadSpace {
  AttentionWorkspace attention;
  int64_t key_stride, value_stride, row_stride;
  int64_t keys, values, tile, wide;
  size_t expansion;

  HeadSpace(int plain, int rotary, int value, int latent)
      : attention(1, std::max(plain + rotary, value), kBlockRows, 1),
        key_stride(round_up(plain, kWidest)),
        value_stride(round_up(value, kWidest)),
        row_stride(round_up(latent + rotary, kWidest)),
        keys(latent * key_stride),
        values(latent * value_stride),
        tile(row_stride * kKvTile),
        wide(4 * row_stride),
        expansion(std::max(HeadMatrix::bytes(latent, plain), HeadMatrix::bytes(value, latent))) {}

  size_t bytes() const {
    const auto floats = static_cast<size_t>(keys + values + tile + wide) * sizeof(float);
    return round_up64(attention.scratch_bytes()) + floats + expansion;
  }
  static size_t round_up64(size_t bytes) { return (bytes + 63) / 64 * 64; }
};

}  // namespace millrace
