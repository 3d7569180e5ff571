// Shared memory layout of a Hopper prefill block, and the barriers between its warps.
#pragma once

#include <cuda.h>

#include "kernels/attention/cuda/prefill/kernel.cuh"
#include "kernels/attention/cuda/prefill/warpgroup.cuh"

namespace millrace {

struct WarpgroupParams {
  PrefillParams prefill;
  int box_rows = 0;  // divides a page and a tile
  CUtensorMap keys, values;
};

template <int kKeyDim, int kValueDim = kKeyDim>
struct WarpgroupConfig {
  static constexpr int kConsumers = 2, kThreads = (kConsumers + 1) * 128, kRows = kConsumers * 64;
  // Long keys leave no registers for queries, long values none for many scores, and either less shared memory.
  static constexpr bool kQueriesInRegisters = kKeyDim <= 128;
  static constexpr int kTokens = kKeyDim <= 192 && kValueDim <= 128 ? 128 : 64;
  static constexpr int kStages = kKeyDim <= 128 && kValueDim <= 128 ? 3 : 2;
  static constexpr int kKeyPanels = kKeyDim / 64, kValuePanels = kValueDim / 64;
  static constexpr int kPanelBytes = kTokens * 128;
  static constexpr int kKeyBytes = kKeyPanels * kPanelBytes, kValueBytes = kValuePanels * kPanelBytes;  // of a tile
  static constexpr int kQueryBytes = kKeyPanels * kRows * 128;
  static constexpr int kLoaders = 3;  // warps that load queries
  static constexpr int kNoteBytes = 32, kBarrierBytes = (4 * kStages + 2) * 8;
  static constexpr int kSharedBytes =
      1024 + kQueryBytes + kStages * (kKeyBytes + kValueBytes) + 2 * kNoteBytes + kBarrierBytes;
};

// Data of a tile of queries and its tiles of keys for the multiplying warps.
struct alignas(16) TileNote {
  int head, row;                  // row: the tile's first row in the batch
  int position, rows;             // position of its first row; rows of the slice from there on
  int length;                     // of the sequence
  int first_position, key_tiles;  // key_tiles = 0: no more tiles
  int pieces;                     // of expanded keys: bit 0: sums began in an earlier piece; bit 1: a later one follows
};

// A position in the ring of key tiles; parity flips with each round.
template <int kStages>
struct RingPlace {
  int stage = 0, parity = 0;

  __device__ RingPlace next() const {
    return stage + 1 < kStages ? RingPlace{stage + 1, parity} : RingPlace{0, parity ^ 1};
  }
};

template <int kKeyDim, int kValueDim = kKeyDim>
struct WarpgroupSpace {
  using Config = WarpgroupConfig<kKeyDim, kValueDim>;
  using Place = RingPlace<Config::kStages>;
  static_assert(sizeof(TileNote) == Config::kNoteBytes);
  uint32_t queries, keys, values, notes, barriers;

  __device__ explicit WarpgroupSpace(uint32_t base) {
    queries = (base + 1023) / 1024 * 1024;
    keys = queries + Config::kQueryBytes;
    values = keys + Config::kStages * Config::kKeyBytes;
    notes = values + Config::kStages * Config::kValueBytes;
    barriers = notes + 2 * Config::kNoteBytes;
  }
  __device__ uint32_t key_tile(Place at) const { return keys + at.stage * Config::kKeyBytes; }
  __device__ uint32_t value_tile(Place at) const { return values + at.stage * Config::kValueBytes; }
  __device__ uint32_t note(int tile) const { return notes + tile % 2 * Config::kNoteBytes; }
  // Rows from `row` on of the panel with column 64 * panel; `row` is a multiple of eight.
  __device__ uint32_t query_panel(int row, int panel) const { return queries + (panel * Config::kRows + row) * 128; }
  __device__ uint32_t query_piece(int row, int piece) const {
    return queries + (piece / 8 * Config::kRows + row) * 128 + (piece % 8 ^ row % 8) * 16;
  }
  __device__ CopyBarrier keys_full(Place at) const { return barrier(0, at.stage); }
  __device__ CopyBarrier keys_empty(Place at) const { return barrier(1, at.stage); }
  __device__ CopyBarrier values_full(Place at) const { return barrier(2, at.stage); }
  __device__ CopyBarrier values_empty(Place at) const { return barrier(3, at.stage); }
  __device__ CopyBarrier queries_full() const { return CopyBarrier(barriers + 4 * Config::kStages * 8); }
  __device__ CopyBarrier queries_empty() const { return CopyBarrier(barriers + (4 * Config::kStages + 1) * 8); }

  __device__ void init_barriers() const {  // call from one thread
    for (Place at; at.parity == 0; at = at.next()) {
      keys_full(at).init(1);
      values_full(at).init(1);
      keys_empty(at).init(Config::kConsumers * 4);
      values_empty(at).init(Config::kConsumers * 4);
    }
    queries_full().init(Config::kLoaders * 32);  // ordinary accesses: each thread arrives for its own
    queries_empty().init(Config::kConsumers * 128);
    publish_to_tensor_cores();
  }

 private:
  __device__ CopyBarrier barrier(int which, int stage) const {
    return CopyBarrier(barriers + static_cast<uint32_t>(which * Config::kStages + stage) * 8);
  }
};

// The tiles of queries that a block processes in turn, so that loads for the next tile overlap with the end of the
// current one. Later tiles attend to more positions and go first; the order of blocks alternates between rounds, so
// that each gets its share of long tiles. Called by whole warps as visit(tile, first position, number of key tiles).
template <int kDim, class Visit>
__device__ void for_each_tile(const PrefillParams& p, Visit visit) {
  using Config = WarpgroupConfig<kDim>;
  const int items = p.tiles * p.heads, blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  for (int round = 0; round * blocks < items; ++round) {
    const int item = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    PrefillTile tile;
    if (item >= items || !find_tile<Config::kRows>(p, item, tile)) continue;
    const int first = tile.slice.past + tile.first;
    const int from = p.args.window > 0 ? max(0, first - p.args.window + 1) : 0;
    const int last = tile.slice.past + min(tile.first + Config::kRows, tile.slice.rows) - 1;
    const int begin = from / Config::kTokens;
    visit(tile, begin * Config::kTokens, last / Config::kTokens + 1 - begin);
  }
}

}  // namespace millrace
