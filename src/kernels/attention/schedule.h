// How the attention of a ragged batch is shared among threads.
//
// A query tile is some rows of one sequence under one KV head, or a single row (a decode) under several KV heads. It
// walks over its keys in steps of kKvTile positions. The steps of all tiles are laid end to end and cut into chunks of
// equal cost, wherever the cuts fall. So one decode at a long context and a batch of many short ones are shared equally
// well, and the number of partial results is bounded by the number of chunks, not by the batch: a chunk holds at most
// one tile that began before it and one that ends after it.
//
// Where results may not depend on the batch, each row under each KV head is a tile of its own, and none is cut.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "kernels/attention/attention.h"

namespace millrace {

constexpr int kKvTile = 64;  // positions; steps begin at multiples of it

// Above it, the heads of a row are worth the blocked way that prefill goes.
constexpr int kFewQueries = 8;

struct QueryTile {
  const SequenceSlice* sequence = nullptr;
  int kv_head = 0, kv_heads = 1;  // the first one, and how many
  int first = 0, rows = 0;        // of the sequence's new rows
  int begin = 0, end = 0;         // positions that any of the rows sees

  int position(int row) const { return sequence->past + first + row; }
  int64_t batch_row(int row) const { return sequence->first_row + first + row; }
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
  // query_tile: how many query vectors (rows x heads of the group) a tile has at most, where a row has no more than
  // that.
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
