// The part of a chunk that depends on the state; see params.cuh.
#pragma once

#include "kernels/cuda/chunked/params.cuh"
#include "kernels/cuda/chunked/tiles.cuh"

namespace millrace::chunked {

constexpr int kAdvanceThreads = 128, kWarpColumns = 16, kBlockColumns = kAdvanceThreads / 32 * kWarpColumns;

// The inputs of a chunk in shared memory; offsets in bytes.
template <int kKeys, bool kSolved>
struct ChunkStage {
  static constexpr uint32_t kTile = kChunk * kKeys * 2, kSquare = kChunk * kChunk * 2;
  static constexpr uint32_t kQ = 0, kK = kTile, kHigh = 2 * kTile, kLow = kHigh + kSquare;
  static constexpr uint32_t kV = kLow + kSquare;  // [kChunk][kBlockColumns], not solved
  static constexpr uint32_t kWHigh = kLow + kSquare, kWLow = kWHigh + kTile;
  static constexpr uint32_t kFactors = kSolved ? kWLow + kTile : kV + kChunk * kBlockColumns * 2;
  static constexpr uint32_t kBytes = kFactors + 1024;  // of factors, and a multiple of 1024 in all
};

// One block per piece, head and kBlockColumns columns of the state; a warp keeps kWarpColumns columns in registers.
// Everything is transposed: accumulators of S^T [columns][keys] and X^T [columns][rows] are laid out as A operands of
// the next product, so that they never leave the registers.
template <int kKeys, bool kSolved>
__global__ void __launch_bounds__(kAdvanceThreads, 1) advance_chunks(const __grid_constant__ ChunkedParams p) {
  using Stage = ChunkStage<kKeys, kSolved>;
  using Record = ChunkRecord<kKeys, kSolved>;
  constexpr int kKeyTiles = kKeys / 8, kRowTiles = kChunk / 8;
  extern __shared__ __align__(1024) unsigned char shared[];
  allow_dependents();
  wait_for_predecessors();
  const Piece piece = p.pieces.at[blockIdx.x];
  const int blocks = (p.value_dim + kBlockColumns - 1) / kBlockColumns;
  const int h = static_cast<int>(blockIdx.y) / blocks, first = static_cast<int>(blockIdx.y) % blocks * kBlockColumns;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int within = lane % 4 * 2, column = first + warp * kWarpColumns + lane / 4;  // and column + 8
  const bool active = first + warp * kWarpColumns < p.value_dim;
  const int64_t first_row = p.slices[piece.slice].first_row + piece.begin, head_column = int64_t{h} * p.value_dim;
  auto* state = reinterpret_cast<float*>(p.state + static_cast<size_t>(p.slots[piece.slice]) * p.stride) +
                head_column * p.key_dim;
  const int chunks = (piece.rows + kChunk - 1) / kChunk;
  const uint32_t base = shared_address(shared);

  const auto record_of = [&](int c) {
    return p.records + (static_cast<size_t>(piece.first_chunk + c) * p.heads + h) * p.record_bytes;
  };
  const auto copy = [&](int c) {
    const uint32_t stage = base + c % 2 * Stage::kBytes;
    const std::byte* record = record_of(c);
    const int count = min(kChunk, piece.rows - c * kChunk);
    const int64_t row = first_row + int64_t{c} * kChunk, key_column = int64_t{p.key_head(h)} * p.key_dim;
    const auto activations = [&](auto tile, const GpuMatrix& m, int64_t at, int cols) {
      copy_tile<decltype(tile)::kWidth, kChunk>(
          tile, reinterpret_cast<const __nv_bfloat16*>(m.data) + row * m.stride + at, m.stride, count, cols);
    };
    const auto recorded = [&](auto tile, size_t at) {
      constexpr int kWidth = decltype(tile)::kWidth;
      copy_tile<kWidth, kChunk>(tile, reinterpret_cast<const __nv_bfloat16*>(record + at), kWidth, kChunk, kWidth);
    };
    activations(Tile<kKeys>{stage + Stage::kQ}, p.q, key_column, p.key_dim);
    activations(Tile<kKeys>{stage + Stage::kK}, p.k, key_column, p.key_dim);
    recorded(Tile<kChunk>{stage + Stage::kHigh}, Record::kHigh);
    recorded(Tile<kChunk>{stage + Stage::kLow}, Record::kLow);
    if constexpr (kSolved) {
      recorded(Tile<kKeys>{stage + Stage::kWHigh}, Record::kWHigh);
      recorded(Tile<kKeys>{stage + Stage::kWLow}, Record::kWLow);
    } else {
      activations(Tile<kBlockColumns>{stage + Stage::kV}, p.v, head_column + first, p.value_dim - first);
    }
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(Record::kFactorBytes / 16); i += kAdvanceThreads)
      copy_async(stage + Stage::kFactors + static_cast<uint32_t>(i) * 16, record + Record::kFactors + i * 16);
    commit_copies();
  };

  copy(0);
  float s[kKeyTiles][4];  // element i: column + i / 2 * 8, key 8 n + within + i % 2
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = n * 8 + within + i % 2;
      s[n][i] = active && key < p.key_dim ? state[int64_t{key} * p.value_dim + column + i / 2 * 8] : 0;
    }
  }
  for (int c = 0; c < chunks; ++c) {
    wait_copies<0>();
    __syncthreads();  // this chunk's copies are visible, and no warp reads the previous chunk
    if (c + 1 < chunks) copy(c + 1);
    if (!active) continue;
    const uint32_t stage = base + c % 2 * Stage::kBytes;
    const auto* factors = reinterpret_cast<const float*>(shared + c % 2 * Stage::kBytes + Stage::kFactors);
    const Tile<kKeys> q{stage + Stage::kQ}, k{stage + Stage::kK};

    float u[kRowTiles][4];
    if constexpr (kSolved) {
      const auto* from = reinterpret_cast<const float*>(record_of(c) + Record::kU);
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float2 two = *reinterpret_cast<const float2*>(from + (column + i * 8) * kChunk + n * 8 + within);
          u[n][2 * i] = two.x, u[n][2 * i + 1] = two.y;
        }
      }
    }
    // S^T Q^T and S^T W^T
    float out[kRowTiles][4] = {}, known[kRowTiles][4] = {};
#pragma unroll
    for (int kt = 0; kt < kKeys / 16; ++kt) {
      Split left;
#pragma unroll
      for (int i = 0; i < 4; ++i) left.set(i, s[2 * kt + i / 2][i % 2 * 2], s[2 * kt + i / 2][i % 2 * 2 + 1]);
#pragma unroll
      for (int pair = 0; pair < kRowTiles / 2; ++pair) {
        uint32_t of_q[4], high[4], low[4];
        q.right_transposed(of_q, pair * 16, kt * 16);
        if constexpr (kSolved) {
          Tile<kKeys>{stage + Stage::kWHigh}.right_transposed(high, pair * 16, kt * 16);
          Tile<kKeys>{stage + Stage::kWLow}.right_transposed(low, pair * 16, kt * 16);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(out[2 * pair + n], left.high, of_q[2 * n], of_q[2 * n + 1]);
        if constexpr (kSolved) {
#pragma unroll
          for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(known[2 * pair + n], left.high, high[2 * n], high[2 * n + 1]);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(out[2 * pair + n], left.low, of_q[2 * n], of_q[2 * n + 1]);
        if constexpr (kSolved) {
#pragma unroll
          for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(known[2 * pair + n], left.low, high[2 * n], high[2 * n + 1]);
#pragma unroll
          for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(known[2 * pair + n], left.high, low[2 * n], low[2 * n + 1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(factors + n * 8 + within);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] *= i % 2 == 0 ? factor.x : factor.y;
    }
    const float total = factors[2 * kChunk];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] *= total;
    }
    const float skip = p.skip != nullptr ? p.skip[h] : 0;
    // For each 16 rows of X: their part of the output and of the state.
#pragma unroll
    for (int kt = 0; kt < kChunk / 16; ++kt) {
      float x[4][2];  // element i of the A operand: column + i % 2 * 8, rows kt * 16 + i / 2 * 8 + within + 0 or 1
      Split left;
      if constexpr (kSolved) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 2; ++j) x[i][j] = u[2 * kt + i / 2][i % 2 * 2 + j] - known[2 * kt + i / 2][i % 2 * 2 + j];
          left.set(i, x[i][0], x[i][1]);
        }
      } else {
        Tile<kBlockColumns>{stage + Stage::kV}.left_transposed(left.high, kt * 16, warp * kWarpColumns);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i][0] = __uint_as_float(left.high[i] << 16);
          x[i][1] = __uint_as_float(left.high[i] & 0xffff0000u);
#pragma unroll
          for (int j = 0; j < 2; ++j) out[2 * kt + i / 2][i % 2 * 2 + j] += skip * x[i][j];
        }
      }
#pragma unroll
      for (int pair = kt; pair < kRowTiles / 2; ++pair) {
        uint32_t high[4], low[4];
        Tile<kChunk>{stage + Stage::kHigh}.right_transposed(high, pair * 16, kt * 16);
        Tile<kChunk>{stage + Stage::kLow}.right_transposed(low, pair * 16, kt * 16);
#pragma unroll
        for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(out[2 * pair + n], left.high, high[2 * n], high[2 * n + 1]);
        if constexpr (kSolved) {
#pragma unroll
          for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(out[2 * pair + n], left.low, high[2 * n], high[2 * n + 1]);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(out[2 * pair + n], left.high, low[2 * n], low[2 * n + 1]);
      }
      Split scaled;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 factor = *reinterpret_cast<const float2*>(factors + kChunk + kt * 16 + i / 2 * 8 + within);
        scaled.set(i, x[i][0] * factor.x, x[i][1] * factor.y);
      }
#pragma unroll
      for (int pair = 0; pair < kKeyTiles / 2; ++pair) {
        uint32_t right[4];
        k.right(right, kt * 16, pair * 16);
#pragma unroll
        for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(s[2 * pair + n], scaled.high, right[2 * n], right[2 * n + 1]);
#pragma unroll
        for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(s[2 * pair + n], scaled.low, right[2 * n], right[2 * n + 1]);
      }
    }
    const int64_t row = first_row + int64_t{c} * kChunk;
    const int count = min(kChunk, piece.rows - c * kChunk);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = n * 8 + within + i % 2;
        if (t < count) p.out.set(row + t, head_column + column + i / 2 * 8, out[n][i]);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = n * 8 + within + i % 2;
      if (active && key < p.key_dim) state[int64_t{key} * p.value_dim + column + i / 2 * 8] = s[n][i];
    }
  }
}

}  // namespace millrace::chunked
