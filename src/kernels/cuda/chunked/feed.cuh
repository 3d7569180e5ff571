// The inputs of chunks on their way to the shared memory of an advancing block.
#pragma once

#include "kernels/cuda/chunked/params.cuh"
#include "kernels/cuda/chunked/tiles.cuh"

namespace millrace::chunked {

constexpr int kAdvanceThreads = 128, kWarpColumns = 16, kBlockColumns = kAdvanceThreads / 32 * kWarpColumns;

// The inputs of a chunk in shared memory; offsets in bytes. There are two stages.
template <int kKeys, bool kSolved>
struct ChunkStage {
  static constexpr uint32_t kTile = kChunk * kKeys * 2, kSquare = kChunk * kChunk * 2;
  static constexpr uint32_t kQ = 0, kK = kTile;
  static constexpr uint32_t kV = 2 * kTile;  // [kChunk][kBlockColumns]
  static constexpr uint32_t kScores = kV + kChunk * kBlockColumns * 2, kInverse = kScores + 2 * kSquare;
  static constexpr uint32_t kFactors = kSolved ? kInverse + 2 * kSquare : kInverse;
  static constexpr uint32_t kBytes = kFactors + 1024;  // of factors, and a multiple of 1024 in all
};

// The share of a block: one piece, one head, and kBlockColumns columns of its state.
struct BlockShare {
  Piece piece;
  int head, first, chunks;  // first: column of the head
  int64_t first_row, head_column;
  float* state;

  __device__ explicit BlockShare(const ChunkedParams& p) {
    piece = p.pieces.at[blockIdx.x];
    const int blocks = (p.value_dim + kBlockColumns - 1) / kBlockColumns;
    head = static_cast<int>(blockIdx.y) / blocks;
    first = static_cast<int>(blockIdx.y) % blocks * kBlockColumns;
    chunks = (piece.rows + kChunk - 1) / kChunk;
    first_row = p.slices[piece.slice].first_row + piece.begin;
    head_column = int64_t{head} * p.value_dim;
    state = reinterpret_cast<float*>(p.state + static_cast<size_t>(p.slots[piece.slice]) * p.stride) +
            head_column * p.key_dim;
  }
  __device__ int rows_of(int chunk) const { return min(kChunk, piece.rows - chunk * kChunk); }
};

// Starts the copies of a chunk's inputs. KeyTile: the form of the tiles of q and k.
template <class KeyTile, bool kSolved>
__device__ void copy_chunk(const ChunkedParams& p, const BlockShare& share, int c, uint32_t stages) {
  using Stage = ChunkStage<KeyTile::kWidth, kSolved>;
  using Record = ChunkRecord<kSolved>;
  const uint32_t stage = stages + c % 2 * Stage::kBytes;
  const std::byte* record =
      p.records + (static_cast<size_t>(share.piece.first_chunk + c) * p.heads + share.head) * Record::kBytes;
  const int64_t row = share.first_row + int64_t{c} * kChunk, key_column = int64_t{p.key_head(share.head)} * p.key_dim;
  const auto activations = [&](auto tile, const GpuMatrix& m, int64_t at, int cols) {
    copy_tile<kAdvanceThreads>(tile, reinterpret_cast<const __nv_bfloat16*>(m.data) + row * m.stride + at, m.stride,
                               share.rows_of(c), cols);
  };
  const auto square = [&](uint32_t to, size_t from) {
    copy_tile<kAdvanceThreads>(Tile<kChunk>{stage + to}, reinterpret_cast<const __nv_bfloat16*>(record + from), kChunk,
                               kChunk, kChunk);
  };
  activations(KeyTile{stage + Stage::kQ}, p.q, key_column, p.key_dim);
  activations(KeyTile{stage + Stage::kK}, p.k, key_column, p.key_dim);
  activations(Tile<kBlockColumns>{stage + Stage::kV}, p.v, share.head_column + share.first, p.value_dim - share.first);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    square(Stage::kScores + part * Stage::kSquare, Record::kScores + part * Record::kSquare);
    if constexpr (kSolved) square(Stage::kInverse + part * Stage::kSquare, Record::kInverse + part * Record::kSquare);
  }
  const uint32_t thread = threadIdx.x % kAdvanceThreads;
  if (thread < Record::kFactorBytes / 16)
    copy_async(stage + Stage::kFactors + thread * 16, record + Record::kFactors + thread * 16);
  commit_copies();
}

// The place of a thread in S^T and its f32 numbers there: s[4 n + i] is column + i / 2 * 8, key 8 n + within + i % 2.
template <int kKeys>
struct StatePart {
  int within, column;
  bool active;

  __device__ StatePart(const ChunkedParams& p, const BlockShare& share) {
    const int first = share.first + static_cast<int>(threadIdx.x) % kAdvanceThreads / 32 * kWarpColumns;
    within = static_cast<int>(threadIdx.x) % 4 * 2;
    column = first + static_cast<int>(threadIdx.x) % 32 / 4;
    active = first < p.value_dim;
  }
  template <class Visit>
  __device__ void for_each(const ChunkedParams& p, const BlockShare& share, Visit visit) const {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = n * 8 + within + i % 2;
        visit(n, i,
              active && key < p.key_dim ? share.state + int64_t{key} * p.value_dim + column + i / 2 * 8 : nullptr);
      }
    }
  }
};

// Writes the part of a thread of a chunk's result: out(n, i) of column + i / 2 * 8, row 8 n + within + i % 2.
template <class Out>
__device__ void write_rows(const ChunkedParams& p, const BlockShare& share, int c, int column, int within, Out out) {
  const int64_t row = share.first_row + int64_t{c} * kChunk;
  const int count = share.rows_of(c);
  with_device_type(p.out.dtype, [&](auto type) {
    using T = decltype(type);
    T* to = reinterpret_cast<T*>(p.out.data) + row * p.out.stride + share.head_column + column;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int t = n * 8 + within + j;
        if (t >= count) continue;
        to[t * p.out.stride] = from_float<T>(out(n, j));
        to[t * p.out.stride + 8] = from_float<T>(out(n, 2 + j));
      }
    }
  });
}

}  // namespace millrace::chunked
