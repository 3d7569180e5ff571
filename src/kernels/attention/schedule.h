// How the attention of a ragged batch is shared among threads.
//
// Each query tile (some rows of one sequence under one KV head) walks over its keys in tiles of kKvTile positions. All
// those steps are laid end to end and cut into chunks of equal cost, wherever the cuts fall. So one decode at a long
// context and a batch of many short ones are shared equally well, and the number of partial results is bounded by the
// number of chunks, not by the batch: a chunk holds at most one tile that began before it and one that ends after it.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "kernels/attention/attention.h"

namespace millrace {

constexpr int kKvTile = 64;     // positions
constexpr int kQueryTile = 64;  // query vectors: rows x heads of the group, where a row has no more than that

struct QueryTile {
  const SequenceSlice* sequence = nullptr;
  int kv_head = 0;
  int first = 0, rows = 0;  // of the sequence's new rows
  int begin = 0, end = 0;   // positions that any of the rows sees
};

// The part of a query tile's walk that one chunk does.
struct Piece {
  QueryTile tile;
  int begin = 0, end = 0;  // positions
  bool first() const { return begin == tile.begin; }
  bool last() const { return end == tile.end; }
};

class AttentionSchedule {
 public:
  AttentionSchedule(const AttentionArgs& args, int threads);

  int chunks() const { return chunks_; }
  void for_pieces(int chunk, FunctionRef<void(const Piece&)> visit) const;

  static int max_chunks(int threads) { return 4 * threads; }
  static int rows_per_tile(int group) { return group >= kQueryTile ? 1 : kQueryTile / group; }

 private:
  QueryTile tile_at(const SequenceSlice& sequence, int kv_head, int first) const;
  int64_t step_cost(const QueryTile& tile) const;
  int64_t sequence_cost(const SequenceSlice& sequence) const;

  const AttentionArgs& args_;
  int group_, chunks_ = 1;
  int64_t total_ = 0;
};

}  // namespace millrace
