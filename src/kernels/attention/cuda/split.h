// Work split of a decode step over the blocks of a launch.
//
// The work forms a line: for each sequence and each pair (a KV head and a tile of at most 16 query rows that share it),
// the units of 16 positions that the pair attends to. Equal ranges of the line keep all blocks busy whatever the
// lengths are, but a range may cross from one pair to the next, which costs a second merge. If whole pieces of pairs
// are nearly as even, they are used instead.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define MR_DEVICE __host__ __device__ inline
#else
#define MR_DEVICE inline
#endif

namespace millrace {

constexpr int kUnit = 16;      // positions
constexpr int kTileRows = 16;  // query rows per tensor-core tile

// One sequence's part of the line.
struct SequenceWork {
  int first_unit = 0;  // first unit that any of its rows attends to
  int units = 0;       // per pair
  int pairs = 0;

  MR_DEVICE int length() const { return units * pairs; }
  MR_DEVICE int pieces(int per) const { return pairs * ((units + per - 1) / per); }
};

MR_DEVICE SequenceWork sequence_work(int rows, int past, int window, int kv_heads, int group) {
  SequenceWork work;
  if (rows <= 0) return work;
  const int seen_from = window > 0 && past >= window ? past - window + 1 : 0;
  work.first_unit = seen_from / kUnit;
  work.units = (past + rows + kUnit - 1) / kUnit - work.first_unit;
  work.pairs = kv_heads * ((rows * group + kTileRows - 1) / kTileRows);
  return work;
}

// The line split over `blocks`. `per` > 0: pieces of that many units that never cross pairs, one per block.
struct Split {
  int total = 0, blocks = 1, per = 0;

  MR_DEVICE int begin(int block) const { return static_cast<int>(static_cast<int64_t>(block) * total / blocks); }
  // The block whose range contains this point of the line.
  MR_DEVICE int owner(int point) const {
    return static_cast<int>(((static_cast<int64_t>(point) + 1) * blocks - 1) / total);
  }
};

// Pieces may exceed an even split by this many units: about the cost of a second merge.
constexpr int kPieceSlack = 4;

// `pieces(per)` returns the number of pieces of all sequences.
template <class Pieces>
MR_DEVICE Split make_split(int total, int blocks, int warps, Pieces pieces) {
  Split split{total, blocks, 0};
  const int even = (total + blocks - 1) / blocks;
  const int least = even > warps ? even : warps;
  for (int per = least; per <= least + kPieceSlack; ++per) {
    if (pieces(per) <= blocks) {
      split.per = per;
      break;
    }
  }
  return split;
}

}  // namespace millrace
