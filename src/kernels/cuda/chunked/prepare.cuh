// The part of a chunk that does not depend on the state; see params.cuh.
#pragma once

#include "kernels/cuda/chunked/params.cuh"
#include "kernels/cuda/chunked/tiles.cuh"

namespace millrace::chunked {

struct GateRow {
  float log_decay;
  float weight;  // solved: of the change; otherwise of k
};

// Gate: `GateRow row(int64_t row, int head)`, kSolved and, where that is true, kLengthEpsilon: q and k are divided by
// their lengths.
template <class Gate>
struct PrepareParams {
  ChunkedParams chunked;
  Gate gate;
};

constexpr int kPrepareThreads = 128, kPrepareWarps = 4;
constexpr int kSquareStride = kChunk + 4;  // of f32 squares in shared memory: 16-byte rows in different banks

template <int kKeys, bool kSolved>
struct PrepareShared {
  static constexpr int kTile = kChunk * kKeys * 2, kSquare = kChunk * kSquareStride * 4;
  static constexpr int kK = 0, kQ = kTile;
  static constexpr int kScores = 0, kInverse = kSquare;  // in the place of k and q, after their products
  static constexpr int kMatrix = std::max(2 * kTile, kSolved ? 2 * kSquare : kSquare);
  static constexpr int kBytes = kSolved ? kMatrix + kSquare : kMatrix;
};

struct ChunkRows {
  double sum[kChunk];  // of log decays up to the row: f32 would lose small differences of large sums
  float of_q[kChunk], of_k[kChunk], weight[kChunk];
  __device__ float decay(int from, int to) const { return __expf(static_cast<float>(sum[to] - sum[from])); }
};

// Log decays become their sums. One warp.
__device__ inline void add_up(double (&sum)[kChunk]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const double first = sum[2 * lane], second = sum[2 * lane + 1];
  double total = first + second;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double before = __shfl_up_sync(~0u, total, step);
    if (lane >= step) total += before;
  }
  sum[2 * lane] = total - second;
  sum[2 * lane + 1] = total;
}

template <int kCols>
__device__ float squares_of(const unsigned char* tile, int row) {
  float sum = 0;
#pragma unroll
  for (int piece = 0; piece < kCols / 8; ++piece) {
    const uint4 eight = *reinterpret_cast<const uint4*>(tile + SwizzledRows<kCols>::offset(row, piece));
    for (const uint32_t two : {eight.x, eight.y, eight.z, eight.w}) {
      const float a = __uint_as_float(two << 16), b = __uint_as_float(two & 0xffff0000u);
      sum = fmaf(a, a, fmaf(b, b, sum));
    }
  }
  return sum;
}

// x = (I + M)^-1 for a strictly lower triangular M, by forward substitution in blocks of 16 rows. A warp has 16
// columns; two of its lanes share a column, each multiplies half of the rows that are known. Straight code for all 64
// rows would wait for its instructions.
__device__ inline void invert(const float* m, float* x) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int column = warp * 16 + lane % 16, half = lane / 16;
#pragma unroll 1
  for (int block = warp * 16; block < kChunk; block += 16) {
    const float* rows = m + block * kSquareStride;
    float sum[16] = {};
#pragma unroll 1
    for (int j = warp * 16 + half * 4; j < block; j += 8) {
      float known[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) known[k] = x[(j + k) * kSquareStride + column];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(rows + i * kSquareStride + j);
        sum[i] -= fmaf(four.x, known[0], four.y * known[1]) + fmaf(four.z, known[2], four.w * known[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      sum[i] += __shfl_xor_sync(~0u, sum[i], 16) + (block + i == column ? 1.0f : 0.0f);
#pragma unroll
      for (int j = 0; j < i; ++j) sum[i] = fmaf(-rows[i * kSquareStride + block + j], sum[j], sum[i]);
      if (half == i % 2) x[(block + i) * kSquareStride + column] = sum[i];
    }
    __syncwarp();
  }
}

// Writes the lower triangle of a square with the columns times `factor`, as a high and a low part; zeros above it.
template <class Factor>
__device__ void store_square(const float* square, Factor factor, std::byte* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * kChunk / 8; i += kPrepareThreads) {
    const int row = i / (kChunk / 8), column = i % (kChunk / 8) * 8;
    uint32_t high[4], low[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float two[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int at = column + 2 * j + k;
        two[k] = at <= row ? square[row * kSquareStride + at] * factor(at) : 0;
      }
      high[j] = pack<__nv_bfloat16>(two[0], two[1]);
      low[j] =
          pack<__nv_bfloat16>(two[0] - __uint_as_float(high[j] << 16), two[1] - __uint_as_float(high[j] & 0xffff0000u));
    }
    auto* place = reinterpret_cast<uint4*>(to) + i;
    *place = uint4{high[0], high[1], high[2], high[3]};
    place[kChunk * kChunk / 8] = uint4{low[0], low[1], low[2], low[3]};
  }
}

// One block per chunk and head. Each warp computes 16 rows of the squares.
template <int kKeys, class Gate>
__global__ void __launch_bounds__(kPrepareThreads) prepare_chunks(const __grid_constant__ PrepareParams<Gate> params) {
  using Shared = PrepareShared<kKeys, Gate::kSolved>;
  using Record = ChunkRecord<Gate::kSolved>;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ ChunkRows rows;
  allow_dependents();
  wait_for_predecessors();
  const ChunkedParams& p = params.chunked;
  const int chunk = static_cast<int>(blockIdx.x), h = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  int i = 0;
  while (i + 1 < p.pieces.count && p.pieces.at[i + 1].first_chunk <= chunk) ++i;
  const Piece piece = p.pieces.at[i];
  const int begin = (chunk - piece.first_chunk) * kChunk, count = min(kChunk, piece.rows - begin);
  const int64_t first_row = p.slices[piece.slice].first_row + piece.begin + begin;

  const uint32_t base = shared_address(shared);
  const Tile<kKeys> k{base + Shared::kK}, q{base + Shared::kQ};
  const auto copy = [&](Tile<kKeys> tile, const GpuMatrix& m) {
    const int64_t at = first_row * m.stride + int64_t{p.key_head(h)} * p.key_dim;
    copy_tile<kPrepareThreads>(tile, reinterpret_cast<const __nv_bfloat16*>(m.data) + at, m.stride, count, p.key_dim);
  };
  copy(k, p.k);
  copy(q, p.q);
  commit_copies();
  if (thread < kChunk) {
    // Rows behind the end change nothing. e^-200 is 0 in f32; the bound keeps infinite decays from becoming NaN.
    const GateRow gate = thread < count ? params.gate.row(first_row + thread, h) : GateRow{0, 0};
    rows.sum[thread] = fmaxf(gate.log_decay, -200.0f);
    rows.weight[thread] = gate.weight;
    if constexpr (!Gate::kSolved) rows.of_q[thread] = 1, rows.of_k[thread] = gate.weight;
  }
  wait_copies<0>();
  __syncthreads();
  if constexpr (Gate::kSolved) {
    const float squares = squares_of<kKeys>(shared + (thread < kChunk ? Shared::kK : Shared::kQ), thread % kChunk);
    if (thread < kChunk) {
      rows.of_k[thread] = rsqrtf(squares + Gate::kLengthEpsilon);
    } else {
      rows.of_q[thread - kChunk] = rsqrtf((squares + Gate::kLengthEpsilon) * static_cast<float>(p.key_dim));
    }
  }
  if (warp == 0) add_up(rows.sum);
  __syncthreads();

  std::byte* record = p.records + (static_cast<size_t>(chunk) * p.heads + h) * Record::kBytes;
  float* matrix = reinterpret_cast<float*>(shared + Shared::kMatrix);
  float* scores = reinterpret_cast<float*>(shared + Shared::kScores);
  const int row = warp * 16 + lane / 4, within = lane % 4 * 2;
  float2 own_scores[kChunk / 16][4];
#pragma unroll
  for (int pair = 0; pair < kChunk / 16; ++pair) {
    if (pair > warp) break;
    float of_q[2][4] = {}, of_k[2][4] = {};
#pragma unroll
    for (int kt = 0; kt < kKeys / 16; ++kt) {
      uint32_t left[4], right[4];
      k.right_transposed(right, pair * 16, kt * 16);
      q.left(left, warp * 16, kt * 16);
#pragma unroll
      for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(of_q[n], left, right[2 * n], right[2 * n + 1]);
      if constexpr (Gate::kSolved) {
        k.left(left, warp * 16, kt * 16);
#pragma unroll
        for (int n = 0; n < 2; ++n) mma<__nv_bfloat16>(of_k[n], left, right[2 * n], right[2 * n + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = row + half * 8, s = pair * 16 + n * 8 + within;
        float score[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float factor = s + j <= t ? rows.decay(s + j, t) * rows.of_k[s + j] : 0;
          score[j] = factor * rows.of_q[t] * of_q[n][half * 2 + j];
          if constexpr (Gate::kSolved) {
            matrix[t * kSquareStride + s + j] =
                s + j < t ? factor * rows.weight[t] * rows.of_k[t] * of_k[n][half * 2 + j] : 0;
          }
        }
        own_scores[pair][n * 2 + half] = {score[0], score[1]};
      }
    }
  }
  auto* factors = reinterpret_cast<float*>(record + Record::kFactors);
  if (thread < kChunk) {
    const float from_begin = __expf(static_cast<float>(rows.sum[thread]));
    factors[thread] = from_begin * rows.of_q[thread];
    factors[kChunk + thread] = from_begin * rows.of_k[thread];
    factors[2 * kChunk + thread] = rows.decay(thread, kChunk - 1) * rows.of_k[thread];
    if (thread < 4) factors[3 * kChunk + thread] = __expf(static_cast<float>(rows.sum[kChunk - 1]));
  }
  __syncthreads();  // no warp reads k and q any more
#pragma unroll
  for (int pair = 0; pair < kChunk / 16; ++pair) {
    if (pair > warp) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = row + i % 2 * 8, s = pair * 16 + i / 2 * 8 + within;
      *reinterpret_cast<float2*>(scores + t * kSquareStride + s) = own_scores[pair][i];
    }
  }
  float* inverse = reinterpret_cast<float*>(shared + Shared::kInverse);
  if constexpr (Gate::kSolved) invert(matrix, inverse);
  __syncthreads();
  store_square(
      scores, [](int) { return 1.0f; }, record + Record::kScores);
  if constexpr (Gate::kSolved) {
    store_square(
        inverse, [&](int column) { return rows.weight[column]; }, record + Record::kInverse);
  }
}

}  // namespace millrace::chunked
