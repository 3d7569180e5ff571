#include "kernels/attention/schedule.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kStepOverhead = 8;      // of a step under one KV head, in query vectors: reading the keys
constexpr int64_t kCostWorthAChunk = 24;  // about two microseconds

int first_step(const QueryTile& tile) { return tile.begin / kKvTile; }
int64_t steps(const QueryTile& tile) { return (tile.end + kKvTile - 1) / kKvTile - first_step(tile); }

// The position at which a step begins; for the step after the last, the end of the tile.
int edge(const QueryTile& tile, int64_t step) {
  return std::clamp((first_step(tile) + static_cast<int>(step)) * kKvTile, tile.begin, tile.end);
}

}  // namespace

AttentionSchedule::AttentionSchedule(const AttentionArgs& args, int query_tile, int threads)
    : args_(args),
      invariant_(args.invariant),
      group_(args.heads / args.kv.kv_heads),
      rows_per_tile_(invariant_ ? 1 : std::max(1, query_tile / group_)),
      decode_kv_heads_(invariant_ ? 1 : decode_kv_heads(threads)) {
  for (const SequenceSlice& sequence : args.sequences) total_ += sequence_cost(sequence);
  const int64_t wanted = std::clamp<int64_t>(total_ / kCostWorthAChunk, 1, max_chunks(threads));
  chunks_ = static_cast<int>(wanted <= threads ? wanted : wanted / threads * threads);
}

// A decode processes all KV heads together: the keys of a page are stored head after head, so this is one memory
// stream, about twice as fast as one head at a time. Only a batch with fewer steps than threads is split along the
// heads.
int AttentionSchedule::decode_kv_heads(int threads) const {
  int64_t steps = 0;
  for (const SequenceSlice& sequence : args_.sequences) steps += sequence.past / kKvTile + 1;
  const int64_t parts = std::clamp<int64_t>(2 * threads / std::max<int64_t>(1, steps), 1, args_.kv.kv_heads);
  return static_cast<int>((args_.kv.kv_heads + parts - 1) / parts);
}

void AttentionSchedule::for_tiles(const SequenceSlice& sequence, FunctionRef<void(const QueryTile&)> visit) const {
  const int kv_heads = is_decode(sequence) ? decode_kv_heads_ : 1;
  for (int kv_head = 0; kv_head < args_.kv.kv_heads; kv_head += kv_heads) {
    for (int first = 0; first < sequence.rows; first += rows_per_tile_) {
      QueryTile tile{&sequence, kv_head, std::min(kv_heads, args_.kv.kv_heads - kv_head), first,
                     std::min(rows_per_tile_, sequence.rows - first)};
      tile.begin = seen_by(args_, sequence, first).begin;
      tile.end = seen_by(args_, sequence, first + tile.rows - 1).end;
      visit(tile);
    }
  }
}

int64_t AttentionSchedule::step_cost(const QueryTile& tile) const {
  return tile.kv_heads * (kStepOverhead + int64_t{tile.rows} * group_);
}

int64_t AttentionSchedule::sequence_cost(const SequenceSlice& sequence) const {
  int64_t cost = 0;
  for_tiles(sequence, [&](const QueryTile& tile) { cost += steps(tile) * step_cost(tile); });
  return cost;
}

void AttentionSchedule::for_pieces(int chunk, FunctionRef<void(const Piece&)> visit) const {
  const int64_t from = total_ * chunk / chunks_, to = total_ * (chunk + 1) / chunks_;
  int64_t at = 0;  // cost of all steps before the current tile
  for (const SequenceSlice& sequence : args_.sequences) {
    if (at >= to) return;
    const int64_t cost = sequence_cost(sequence);
    if (at + cost <= from) {
      at += cost;
      continue;
    }
    for_tiles(sequence, [&](const QueryTile& tile) {
      const int64_t each = step_cost(tile), count = steps(tile);
      // A step belongs to the chunk in which it starts.
      const auto step_at = [&](int64_t cut) {
        if (invariant_) return cut <= at ? 0 : count;
        return cut <= at ? 0 : std::min((cut - at + each - 1) / each, count);
      };
      const int64_t begin = step_at(from), end = step_at(to);
      if (begin < end) visit({tile, edge(tile, begin), edge(tile, end)});
      at += each * count;
    });
  }
}

}  // namespace millrace
