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
  static constexpr uint32_t kQ = 0, kK = kTile;
  static constexpr uint32_t kV = 2 * kTile;  // [kChunk][kBlockColumns]
  static constexpr uint32_t kScores = kV + kChunk * kBlockColumns * 2, kInverse = kScores + 2 * kSquare;
  static constexpr uint32_t kFactors = kSolved ? kInverse + 2 * kSquare : kInverse;
  static constexpr uint32_t kBytes = kFactors + 1024;  // of factors, and a multiple of 1024 in all
};

// sums += left * square, for 16 summed rows of a square of the record: its 16 x 16 blocks (pair, kt) from pair = kt on.
// kExact: left has no low part.
template <bool kExact>
__device__ void multiply_square(float (*sums)[4], const Split& left, uint32_t square, int kt) {
  constexpr int kSteps = kChunk / 16;
  uint32_t right[kSteps][4];
  const auto load = [&](Tile<kChunk> part) {
#pragma unroll
    for (int pair = 0; pair < kSteps; ++pair) {
      if (pair >= kt) part.right_transposed(right[pair], pair * 16, kt * 16);
    }
  };
  load({square});
  multiply(sums, left.high, right, kt);
  if constexpr (!kExact) multiply(sums, left.low, right, kt);
  load({square + kChunk * kChunk * 2});
  multiply(sums, left.high, right, kt);
}

// One block per piece, head and kBlockColumns columns of the state; a warp keeps kWarpColumns columns in registers.
// Everything is transposed: accumulators of S^T [columns][keys] and X^T [columns][rows] are laid out as A operands of
// the next product, so that they never leave the registers.
template <int kKeys, bool kSolved>
__global__ void __launch_bounds__(kAdvanceThreads, 1) advance_chunks(const __grid_constant__ ChunkedParams p) {
  using Stage = ChunkStage<kKeys, kSolved>;
  using Record = ChunkRecord<kSolved>;
  constexpr int kKeyTiles = kKeys / 8, kRowTiles = kChunk / 8, kSteps = kChunk / 16;
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

  const auto copy = [&](int c) {
    const uint32_t stage = base + c % 2 * Stage::kBytes;
    const std::byte* record = p.records + (static_cast<size_t>(piece.first_chunk + c) * p.heads + h) * Record::kBytes;
    const int count = min(kChunk, piece.rows - c * kChunk);
    const int64_t row = first_row + int64_t{c} * kChunk, key_column = int64_t{p.key_head(h)} * p.key_dim;
    const auto activations = [&](auto tile, const GpuMatrix& m, int64_t at, int cols) {
      copy_tile<kAdvanceThreads>(tile, reinterpret_cast<const __nv_bfloat16*>(m.data) + row * m.stride + at, m.stride,
                                 count, cols);
    };
    const auto square = [&](uint32_t to, size_t from) {
      copy_tile<kAdvanceThreads>(Tile<kChunk>{stage + to}, reinterpret_cast<const __nv_bfloat16*>(record + from),
                                 kChunk, kChunk, kChunk);
    };
    activations(Tile<kKeys>{stage + Stage::kQ}, p.q, key_column, p.key_dim);
    activations(Tile<kKeys>{stage + Stage::kK}, p.k, key_column, p.key_dim);
    activations(Tile<kBlockColumns>{stage + Stage::kV}, p.v, head_column + first, p.value_dim - first);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      square(Stage::kScores + part * Stage::kSquare, Record::kScores + part * Record::kSquare);
      if constexpr (kSolved) square(Stage::kInverse + part * Stage::kSquare, Record::kInverse + part * Record::kSquare);
    }
    if (threadIdx.x < Record::kFactorBytes / 16)
      copy_async(stage + Stage::kFactors + threadIdx.x * 16, record + Record::kFactors + threadIdx.x * 16);
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
  const float skip = p.skip != nullptr ? p.skip[h] : 0;
  for (int c = 0; c < chunks; ++c) {
    wait_copies<0>();
    __syncthreads();  // this chunk's copies are visible, and no warp reads the previous chunk
    if (c + 1 < chunks) copy(c + 1);
    if (!active) continue;
    const uint32_t stage = base + c % 2 * Stage::kBytes;
    const auto* factors = reinterpret_cast<const float*>(shared + c % 2 * Stage::kBytes + Stage::kFactors);
    const Tile<kKeys> q{stage + Stage::kQ}, k{stage + Stage::kK};
    const auto factor_of = [&](int kind, int n) {  // of rows 8 n + within and the next one
      return *reinterpret_cast<const float2*>(factors + kind * kChunk + n * 8 + within);
    };

    // S^T Q^T and S^T K^T
    float out[kRowTiles][4] = {}, known[kRowTiles][4] = {};
#pragma unroll
    for (int kt = 0; kt < kKeys / 16; ++kt) {
      Split left;
      uint32_t of_q[kSteps][4], of_k[kSteps][4];
#pragma unroll
      for (int pair = 0; pair < kSteps; ++pair) {
        q.right_transposed(of_q[pair], pair * 16, kt * 16);
        if constexpr (kSolved) k.right_transposed(of_k[pair], pair * 16, kt * 16);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) left.set(i, s[2 * kt + i / 2][i % 2 * 2], s[2 * kt + i / 2][i % 2 * 2 + 1]);
      multiply(out, left.high, of_q);
      if constexpr (kSolved) multiply(known, left.high, of_k);
      multiply(out, left.low, of_q);
      if constexpr (kSolved) multiply(known, left.low, of_k);
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const float2 factor = factor_of(0, n);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] *= i % 2 == 0 ? factor.x : factor.y;
    }

    // X^T; element i of x[kt]: column + i % 2 * 8, rows kt * 16 + i / 2 * 8 + within and the next one
    float x[kRowTiles][4] = {};
#pragma unroll
    for (int kt = 0; kt < kSteps; ++kt) {
      uint32_t of_v[4];
      Tile<kBlockColumns>{stage + Stage::kV}.left_transposed(of_v, kt * 16, warp * kWarpColumns);
      if constexpr (kSolved) {
        Split left;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 factor = factor_of(1, 2 * kt + i / 2);
          const float(&of_k)[4] = known[2 * kt + i / 2];
          left.set(i, __uint_as_float(of_v[i] << 16) - factor.x * of_k[i % 2 * 2],
                   __uint_as_float(of_v[i] & 0xffff0000u) - factor.y * of_k[i % 2 * 2 + 1]);
        }
        multiply_square<false>(x, left, stage + Stage::kInverse, kt);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[2 * kt + i / 2][i % 2 * 2] = __uint_as_float(of_v[i] << 16);
          x[2 * kt + i / 2][i % 2 * 2 + 1] = __uint_as_float(of_v[i] & 0xffff0000u);
        }
      }
    }
    if constexpr (!kSolved) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][i] += skip * x[n][i];
      }
    }

    const float total = factors[3 * kChunk];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] *= total;
    }
    // For each 16 rows of X: their part of the output and of the state.
#pragma unroll
    for (int kt = 0; kt < kSteps; ++kt) {
      Split left, scaled;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 factor = factor_of(2, 2 * kt + i / 2);
        const float(&of_x)[4] = x[2 * kt + i / 2];
        left.set(i, of_x[i % 2 * 2], of_x[i % 2 * 2 + 1]);
        scaled.set(i, of_x[i % 2 * 2] * factor.x, of_x[i % 2 * 2 + 1] * factor.y);
      }
      multiply_square<!kSolved>(out, left, stage + Stage::kScores, kt);  // without the solution X is V, which is exact
      constexpr int kAtOnce = 4;
#pragma unroll
      for (int begin = 0; begin < kKeyTiles / 2; begin += kAtOnce) {
        uint32_t of_k[kAtOnce][4];
#pragma unroll
        for (int pair = 0; pair < kAtOnce; ++pair) k.right(of_k[pair], kt * 16, (begin + pair) * 16);
        multiply(s + 2 * begin, scaled.high, of_k);
        multiply(s + 2 * begin, scaled.low, of_k);
      }
    }

    const int64_t row = first_row + int64_t{c} * kChunk;
    const int count = min(kChunk, piece.rows - c * kChunk);
    with_device_type(p.out.dtype, [&](auto type) {
      using T = decltype(type);
      T* to = reinterpret_cast<T*>(p.out.data) + row * p.out.stride + head_column + column;
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int t = n * 8 + within + j;
          if (t >= count) continue;
          to[t * p.out.stride] = from_float<T>(out[n][j]);
          to[t * p.out.stride + 8] = from_float<T>(out[n][2 + j]);
        }
      }
    });
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
