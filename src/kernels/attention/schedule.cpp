#include "kernels/attention/schedule.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kStepOverhead = 8;      // of a step, in units of one query vector: reading and converting the keys
constexpr int64_t kCostWorthAChunk = 24;  // about two microseconds

int64_t steps(const QueryTile& tile) { return (tile.end - tile.begin + kKvTile - 1) / kKvTile; }

}  // namespace

AttentionSchedule::AttentionSchedule(const AttentionArgs& args, int threads)
    : args_(args), group_(args.heads / args.kv.kv_heads) {
  for (const SequenceSlice& sequence : args.sequences) total_ += sequence_cost(sequence);
  const int64_t wanted = std::clamp<int64_t>(total_ / kCostWorthAChunk, 1, max_chunks(threads));
  chunks_ = static_cast<int>(wanted <= threads ? wanted : wanted / threads * threads);
}

QueryTile AttentionSchedule::tile_at(const SequenceSlice& sequence, int kv_head, int first) const {
  QueryTile tile{&sequence, kv_head, first, std::min(rows_per_tile(group_), sequence.rows - first)};
  tile.begin = args_.window > 0 ? std::max(0, sequence.past + first - args_.window + 1) : 0;
  tile.end = sequence.past + first + tile.rows;
  return tile;
}

int64_t AttentionSchedule::step_cost(const QueryTile& tile) const {
  return kStepOverhead + int64_t{tile.rows} * group_;
}

int64_t AttentionSchedule::sequence_cost(const SequenceSlice& sequence) const {
  int64_t cost = 0;
  for (int first = 0; first < sequence.rows; first += rows_per_tile(group_)) {
    const QueryTile tile = tile_at(sequence, 0, first);
    cost += steps(tile) * step_cost(tile);
  }
  return cost * args_.kv.kv_heads;
}

void AttentionSchedule::for_pieces(int chunk, FunctionRef<void(const Piece&)> visit) const {
  const int64_t from = total_ * chunk / chunks_, to = total_ * (chunk + 1) / chunks_;
  int64_t at = 0;  // cost of all steps before the tile at hand
  for (const SequenceSlice& sequence : args_.sequences) {
    const int64_t cost = sequence_cost(sequence);
    if (at >= to) return;
    if (at + cost <= from) {
      at += cost;
      continue;
    }
    for (int kv_head = 0; kv_head < args_.kv.kv_heads; ++kv_head) {
      for (int first = 0; first < sequence.rows; first += rows_per_tile(group_)) {
        const QueryTile tile = tile_at(sequence, kv_head, first);
        const int64_t each = step_cost(tile), count = steps(tile);
        // A step belongs to the chunk in which it starts.
        const auto step_at = [&](int64_t point) {
          return std::clamp<int64_t>((point - at + each - 1) / each, 0, count);
        };
        const int64_t begin = from <= at ? 0 : step_at(from), end = to <= at ? 0 : step_at(to);
        if (begin < end) {
          visit({tile, tile.begin + static_cast<int>(begin) * kKvTile,
                 std::min(tile.end, tile.begin + static_cast<int>(end) * kKvTile)});
        }
        at += each * count;
      }
    }
  }
}

}  // namespace millrace
