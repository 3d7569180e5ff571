// The part of a chunk that depends on the state; see params.cuh.
#pragma once

#include "kernels/cuda/chunked/feed.cuh"

namespace millrace::chunked {

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
  constexpr int kKeyTiles = kKeys / 8, kRowTiles = kChunk / 8, kSteps = kChunk / 16;
  extern __shared__ __align__(1024) unsigned char shared[];
  allow_dependents();
  wait_for_predecessors();
  const BlockShare share(p);
  const StatePart<kKeys> part(p, share);
  const int warp = static_cast<int>(threadIdx.x) / 32, within = part.within;
  const uint32_t base = shared_address(shared);
  const auto copy = [&](int c) { copy_chunk<Tile<kKeys>, kSolved>(p, share, c, base); };

  copy(0);
  float s[kKeyTiles][4];
  part.for_each(p, share, [&](int n, int i, const float* from) { s[n][i] = from != nullptr ? *from : 0; });
  const float skip = p.skip != nullptr ? p.skip[share.head] : 0;
  for (int c = 0; c < share.chunks; ++c) {
    wait_copies<0>();
    __syncthreads();  // this chunk's copies are visible, and no warp reads the previous chunk
    if (c + 1 < share.chunks) copy(c + 1);
    if (!part.active) continue;
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

    write_rows(p, share, c, part.column, within, [&](int n, int i) { return out[n][i]; });
  }
  part.for_each(p, share, [&](int n, int i, float* to) {
    if (to != nullptr) *to = s[n][i];
  });
}

}  // namespace millrace::chunked
