// Splits the attention of a ragged batch over threads.
//
// A query tile is some rows of one sequence under one KV head, or a single row (decode) under several KV heads. It
// iterates over its keys in steps of kKvTile positions. The steps of all tiles form one list that is cut into chunks of
// equal cost, at any step. One decode at a long context and many short ones are thus balanced equally well. The number
// of partial results is bounded by the number of chunks, not by the batch: a chunk holds at most one tile that began
// before it and one that ends after it.
//
// If results may not depend on the batch, each row under each KV head is its own tile, and no tile is cut.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "kernels/attention/attention.h"

namespace millrace {

constexpr int kKvTile = 64;  // positions; steps begin at multiples of it

// With more query heads per KV head than this, decode uses the blocked kernels of prefill.
constexpr int kFewQueries = 8;

struct QueryTile {
  const SequenceSlice* sequence = nullptr;
  int kv_head = 0, kv_heads = 1;  // the first, and their number
  int first = 0, rows = 0;        // of the sequence's new rows
  int begin = 0, end = 0;         // positions that any of the rows attends to

  int position(int row) const { return sequence->past + first + row; }
  int64_t batch_row(int row) const { return sequence->first_row + first + row; }
};

// The part of a query tile that one chunk processes.
struct Piece {
  QueryTile tile;
  int begin = 0, end = 0;  // positions
  bool first() const { return begin == tile.begin; }
  bool last() const { return end == tile.end; }
};

class AttentionSchedule {
 public:
  // query_tile: maximum number of query vectors (rows x heads of the group) per tile, unless one row has more.
  AttentionSchedule(const AttentionArgs& args, int query_tile, int threads);

  int chunks() const { return chunks_; }
  void for_pieces(int chunk, FunctionRef<void(const Piece&)> visit) const;

  static int max_chunks(int threads) { return 4 * threads; }

 private:
  bool is_decode(const SequenceSlice& sequence) const { return sequence.rows == 1 && group_ <= kFewQueries; }
  void for_tiles(const SequenceSlice& sequence, FunctionRef<void(const QueryTile&)> visit) const;
  int64_t step_cost(const QueryTile& tile) const;
  int64_t sequence_cost(const SequenceSlice& sequence) const;
  int decode_kv_heads(int threads) const;

  const AttentionArgs& args_;
  const bool invariant_;
  const int group_, rows_per_tile_, decode_kv_heads_;
  int chunks_ = 1;
  int64_t total_ = 0;
};

}  // namespace millrace
