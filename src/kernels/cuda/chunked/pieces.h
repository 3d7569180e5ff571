// Chunks of a step's prompts, for the recurrences that run as matrix products over chunks of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"

namespace millrace::chunked {

constexpr int kChunk = 64;           // rows
constexpr int32_t kLeastRows = 32;   // of a slice that is computed in chunks; shorter ones are computed row by row
constexpr int kMostPieces = 32;      // of one launch
constexpr int64_t kMostChunks = 32;  // of one launch: 32 heads' records of 32 KB stay in an L2 cache of 40 MB

// Consecutive rows of one slice. Pieces of a launch have different slices. The rows come from the host, slots and first
// rows from the tables in device memory: a recorded step is replayed with other slots.
struct Piece {
  int32_t slice, begin, rows, first_chunk;
};
struct Pieces {
  int32_t count = 0, chunks = 0;
  Piece at[kMostPieces];
};

inline int64_t chunks_of(int64_t rows) { return (rows + kChunk - 1) / kChunk; }
// Chunks that the workspace holds for a step of so many rows.
inline int64_t chunks_at_once(int64_t rows) { return std::clamp<int64_t>(chunks_of(rows), 1, kMostChunks); }

// Calls launch(pieces) until all long slices are done. A slice that exceeds the workspace goes on in the next launch:
// it is cut between chunks, so that results do not depend on the cut.
template <class Launch>
void for_pieces(std::span<const SequenceSlice> slices, int64_t at_once, Launch launch) {
  Pieces pieces;
  const auto flush = [&] {
    if (pieces.count > 0) launch(pieces);
    pieces.count = pieces.chunks = 0;
  };
  for (size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].rows < kLeastRows) continue;
    for (int32_t begin = 0; begin < slices[i].rows;) {
      if (pieces.count == kMostPieces || pieces.chunks == at_once) flush();
      const auto room = static_cast<int32_t>((at_once - pieces.chunks) * kChunk);
      const int32_t rows = std::min(room, slices[i].rows - begin);
      pieces.at[pieces.count++] = {static_cast<int32_t>(i), begin, rows, pieces.chunks};
      pieces.chunks += static_cast<int32_t>(chunks_of(rows));
      begin += rows;
    }
  }
  flush();
}

}  // namespace millrace::chunked
