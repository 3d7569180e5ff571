// What all ways through a query tile share: where its keys and values lie, and which positions a row sees.

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

struct RowPointers {
  const std::byte* keys[kKvTile];
  const std::byte* values[kKvTile];
};

// Where positions [begin, begin + n) lie; the last key is repeated up to the next multiple of four.
inline void find_rows(const AttentionArgs& args, const QueryTile& tile, int begin, int n, RowPointers& rows) {
  const KvLayer& kv = args.kv;
  const size_t bytes = kv.row_bytes();
  for (int t = 0; t < n;) {
    const int position = begin + t;
    int slot = position % kv.block_size;
    size_t at = kv.offset(tile.sequence->pages[position / kv.block_size], tile.kv_head, slot);
    for (; t < n && slot < kv.block_size; ++t, ++slot, at += bytes) {
      rows.keys[t] = kv.keys + at;
      rows.values[t] = kv.values + at;
    }
  }
  for (int t = n; t % 4 != 0; ++t) rows.keys[t] = rows.keys[n - 1];
}

struct TileShape {
  TileShape(const AttentionArgs& args, const AttentionWorkspace& space)
      : args(args),
        group(args.heads / args.kv.kv_heads),
        dim(args.kv.head_dim),
        stride(space.stride),
        query_scale(args.softcap > 0 ? args.scale : args.scale * kLog2E) {}

  int head(const QueryTile& tile, int g) const { return tile.kv_head * group + g; }
  int position(const QueryTile& tile, int row) const { return tile.sequence->past + tile.first + row; }
  const float* query(const QueryTile& tile, int row, int g) const {
    return args.q.row<float>(tile.sequence->first_row + tile.first + row) + head(tile, g) * dim;
  }

  // Maxima that nothing has moved yet: none, or the unified one where it was calibrated.
  template <Softmax variant>
  void start(const QueryTile& tile, Partial& partial) const {
    for (int row = 0; row < tile.rows; ++row) {
      for (int g = 0; g < group; ++g) {
        const bool given = variant == Softmax::Unified && args.phi != nullptr;
        partial.maxima[row * group + g] = given ? args.phi[head(tile, g)] * kLog2E : kNoScore;
        partial.totals[row * group + g] = 0;
      }
    }
    std::fill_n(partial.sums, tile.rows * group * stride, 0.0f);
  }

  // A unified maximum far above all scores leaves totals that have lost their digits.
  bool totals_are_sound(const QueryTile& tile, const Partial& partial) const {
    for (int vector = 0; vector < tile.rows * group; ++vector) {
      if (partial.maxima[vector] != kNoScore && !(partial.totals[vector] > kSmallestTotal)) return false;
    }
    return true;
  }

  const AttentionArgs& args;
  const int group;
  const int64_t dim, stride;
  const float query_scale;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_TILE_INL_H
