// How a chunk is cut for materialised latent attention on a GPU, and the workspace: some heads at a time, and of these
// the context in pieces.
#pragma once

#include <algorithm>
#include <utility>

#include "base/rounding.h"
#include "hardware/cuda/cublaslt.h"
#include "kernels/attention/cuda/prefill/expanded.h"
#include "kernels/latent_prompt/latent_prompt.h"

namespace millrace {

struct LatentCut {
  struct Limits {
    size_t bytes = size_t{256} << 20;  // of expanded rows at a time
    int64_t heads = 32;                // at a time: sums between pieces take 2 MB for each head and 2048 rows
    int64_t positions = int64_t{1} << 15;
  };

  int64_t head_columns;      // of the expanded rows: a key without its rotary part, and a value
  int64_t row_columns;       // latent and rotary part
  int64_t heads, positions;  // at a time; positions is a multiple of kExpandedTile
  int64_t rounds = 0;        // of tiles of queries on all multiprocessors, of one piece and all heads
  // Offsets of the parts of the workspace.
  size_t unpacked, matrices, latents, expanded, sums[2], totals[2], bytes;

  // `problem` is a bucket: all chunks of a bucket are cut alike.
  LatentCut(const LatentPromptOp::Problem& p, int cores, const Limits& limits)
      : head_columns(p.plain_dim + round_up(p.value_dim, 8)), row_columns(p.latent_dim + p.rotary_dim) {
    choose(p, cores, limits);
    const int64_t matrix = heads * head_columns * p.latent_dim * 2;
    const int64_t between = positions < p.context ? heads * p.rows : 0;
    size_t end = CublasLtGemm::kWorkspaceBytes;
    const auto place = [&](int64_t size) { return std::exchange(end, end + static_cast<size_t>(round_up(size, 256))); };
    unpacked = place(matrix);
    matrices = place(matrix);
    latents = place(positions * row_columns * 2);
    expanded = place(positions * heads * head_columns * 2);
    for (size_t& at : sums) at = place(between * padded_value(p.plain_dim, p.value_dim) * int64_t{sizeof(float)});
    for (size_t& at : totals) at = place(between * 2 * int64_t{sizeof(float)});
    bytes = end;
  }

 private:
  // Pieces of even size that fit.
  static int64_t positions_of(int64_t context, int64_t columns, const Limits& limits) {
    const auto fit = static_cast<int64_t>(limits.bytes / 2) / columns;
    const int64_t most = std::max<int64_t>(1, std::min(fit, limits.positions) / kExpandedTile) * kExpandedTile;
    return round_up(ceil_div(context, ceil_div(context, most)), kExpandedTile);
  }

  // Few heads at a time leave multiprocessors idle, many leave room for short pieces only.
  void choose(const LatentPromptOp::Problem& p, int cores, const Limits& limits) {
    constexpr int64_t kLaunches = 600,
                      kSums = 300;  // time of a piece's launches, and of its sums, in positions of a tile
    const int64_t tiles = ceil_div(p.rows, kExpandedTile);
    int64_t least = 0;
    for (int64_t h = std::min<int64_t>(p.heads, limits.heads); h >= 1; --h) {
      const int64_t each = positions_of(p.context, h * head_columns + row_columns, limits);
      const int64_t groups = ceil_div(p.heads, h), pieces = ceil_div(p.context, each);
      const int64_t all = p.heads / h * ceil_div(h * tiles, cores) + ceil_div(p.heads % h * tiles, cores);
      const int64_t cost = all * p.context + groups * (pieces * kLaunches + (pieces - 1) * kSums);
      if (rounds > 0 && cost >= least) continue;
      least = cost, heads = h, positions = each, rounds = all;
    }
  }
};

}  // namespace millrace
