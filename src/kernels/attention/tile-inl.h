// Common to all kernels on a query tile: its shape, the addresses of its queries, keys and values, initial values and
// validity checks.

#if defined(MILLRACE_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_TILE_INL_H
#undef MILLRACE_TILE_INL_H
#else
#define MILLRACE_TILE_INL_H
#endif

#include "kernels/attention/softmax-inl.h"
#include "kernels/attention/workspace.h"
#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

class TileShape {
 public:
  TileShape(const AttentionArgs& args, const AttentionWorkspace& space, const QueryTile& tile)
      : args(args),
        tile(tile),
        group(args.heads / args.kv.kv_heads),
        heads(tile.kv_heads * group),
        vectors(tile.rows * heads),
        dim(args.kv.key_dim),  // of values too: a latent value is summed up with the rest of its key row
        stride(space.stride),
        row_bytes(args.kv.key_row_bytes()),
        query_scale(args.softcap > 0 ? args.scale : args.scale * kLog2E) {}

  bool is_decode() const { return tile.rows == 1 && group <= kFewQueries; }
  const float* query(int row, int head) const {
    return args.q.row<float>(tile.batch_row(row)) + (tile.kv_head * group + head) * dim;
  }

  SeenPositions seen(int row) const { return seen_by(args, *tile.sequence, tile.first + row); }
  // Whether some row of the tile does not attend to all of the positions [begin, end).
  bool is_masked(int begin, int end) const { return end > seen(0).end || begin < seen(tile.rows - 1).begin; }

  // Number of positions of [begin, end) in the same page as `begin`; offset of a position's keys and values.
  int run_in_page(int begin, int end) const {
    return std::min(end - begin, args.kv.block_size - begin % args.kv.block_size);
  }
  size_t offset(int position, int kv_head) const {
    const int block = args.kv.block_size;
    return args.kv.key_offset(tile.sequence->pages[position / block], tile.kv_head + kv_head, position % block);
  }

  // Addresses of the keys (or values) of positions [begin, end). Repeats the last one up to a multiple of `together`;
  // returns that number.
  int find_rows(int begin, int end, const std::byte* base, int together, const std::byte** rows) const {
    int t = 0;
    for (int at = begin, n; at < end; at += n) {
      n = run_in_page(at, end);
      const std::byte* row = base + offset(at, 0);
      for (int i = 0; i < n; ++i, row += row_bytes) rows[t++] = row;
    }
    for (; t % together != 0; ++t) rows[t] = rows[t - 1];
    return t;
  }

  // Initial maxima: kNoScore, or the calibrated unified maximum.
  template <Softmax variant>
  void start(Partial& partial) const {
    for (int64_t vector = 0; vector < vectors; ++vector) {
      const bool given = variant == Softmax::Unified && args.phi != nullptr;
      partial.maxima[vector] = given ? args.phi[tile.kv_head * group + vector % heads] * kLog2E : kNoScore;
      partial.totals[vector] = 0;
    }
    std::fill_n(partial.sums, vectors * stride, 0.0f);
  }

  // A unified maximum far above all scores leaves totals without precision.
  bool totals_are_sound(const Partial& partial) const {
    for (int64_t vector = 0; vector < vectors; ++vector) {
      if (partial.maxima[vector] != kNoScore && !(partial.totals[vector] > kSmallestTotal)) return false;
    }
    return true;
  }

  const AttentionArgs& args;
  const QueryTile& tile;
  const int group, heads;  // heads of the tile: those of all its KV heads
  const int64_t vectors, dim, stride;
  const size_t row_bytes;
  const float query_scale;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_TILE_INL_H
