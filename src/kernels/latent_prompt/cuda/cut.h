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
  static constexpr int64_t kMostPositions = int64_t{1} << 15;

  int64_t head_columns;      // of the expanded rows: a key without its rotary part, and a value
  int64_t heads, positions;  // at a time; positions is a multiple of kExpandedTile
  int64_t row_columns;       // latent and rotary part
  // Offsets of the parts of the workspace.
  size_t unpacked, matrices, latents, expanded, sums[2], totals[2], bytes;

  // `problem` is a bucket: all chunks of a bucket are cut alike. Whole contexts of some heads need no sums between
  // pieces, but a launch with few heads leaves multiprocessors idle. `budget`: bytes of expanded rows.
  LatentCut(const LatentPromptOp::Problem& p, int cores, size_t budget)
      : head_columns(p.plain_dim + round_up(p.value_dim, int64_t{8})), row_columns(p.latent_dim + p.rotary_dim) {
    const int64_t tiles = ceil_div(p.rows, int64_t{kExpandedTile}), all = round_up(p.context, int64_t{kExpandedTile});
    const int64_t busy = std::clamp<int64_t>(ceil_div(int64_t{2} * cores, tiles), 1, p.heads);
    const auto rows = static_cast<int64_t>(budget / 2);
    const int64_t whole = std::min<int64_t>(p.heads, (rows / all - row_columns) / head_columns);
    if (whole >= busy && all <= kMostPositions) {
      heads = ceil_div(int64_t{p.heads}, ceil_div(int64_t{p.heads}, whole));  // in groups of about one size
      positions = all;
    } else {
      heads = busy;
      const int64_t most = std::min(kMostPositions, rows / (busy * head_columns + row_columns));
      positions = std::min(all, std::max<int64_t>(1, most / kExpandedTile) * kExpandedTile);
    }
    const int64_t matrix = heads * head_columns * p.latent_dim * 2;
    const int64_t between = positions < all ? heads * p.rows : 0;
    size_t end = CublasLtGemm::kWorkspaceBytes;
    const auto place = [&](int64_t size) {
      return std::exchange(end, end + static_cast<size_t>(round_up(size, int64_t{256})));
    };
    unpacked = place(matrix);
    matrices = place(matrix);
    latents = place(positions * row_columns * 2);
    expanded = place(positions * heads * head_columns * 2);
    for (size_t& at : sums) at = place(between * padded_value(p.plain_dim, p.value_dim) * int64_t{sizeof(float)});
    for (size_t& at : totals) at = place(between * 2 * int64_t{sizeof(float)});
    bytes = end;
  }
};

}  // namespace millrace
