// The part of a chunk that does not depend on the state; see params.cuh.
#pragma once

#include "kernels/cuda/chunked/params.cuh"
#include "kernels/cuda/chunked/tiles.cuh"

namespace millrace::chunked {

struct GateRow {
  float log_decay;
  float weight;  // solved: of the change; otherwise of k
};

// Gate: `GateRow row(int64_t row, int head)`, kSolved, kLengthEpsilon (q and k are divided by their lengths if solved).
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
  static constexpr int kK = 0, kQ = kTile, kMatrix = 2 * kTile;
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

// Adds to a square of the record: the high parts lie before the low ones.
__device__ inline void store_two(std::byte* square, int at, float a, float b) {
  const uint32_t high = pack<__nv_bfloat16>(a, b);
  *reinterpret_cast<uint32_t*>(square + at * 2) = high;
  *reinterpret_cast<uint32_t*>(square + (kChunk * kChunk + at) * 2) =
      pack<__nv_bfloat16>(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xffff0000u));
}
__device__ inline void store_one(std::byte* square, int at, float a) {
  auto* to = reinterpret_cast<__nv_bfloat16*>(square) + at;
  const uint32_t high = pack<__nv_bfloat16>(a, a);
  const uint32_t low = pack<__nv_bfloat16>(a - __uint_as_float(high << 16), 0);
  *to = reinterpret_cast<const __nv_bfloat16&>(high);
  to[kChunk * kChunk] = reinterpret_cast<const __nv_bfloat16&>(low);
}

// A column of (I + M)^-1, times `factor`, where M is strictly lower triangular: forward substitution.
__device__ inline void invert_column(const float* m, int column, float factor, std::byte* inverse) {
  float x[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    float sum[4] = {i == column ? -1.0f : 0.0f, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(m + i * kSquareStride + j);
      sum[0] = fmaf(four.x, x[j], sum[0]);
      if (j + 1 < i) sum[1] = fmaf(four.y, x[j + 1], sum[1]);
      if (j + 2 < i) sum[2] = fmaf(four.z, x[j + 2], sum[2]);
      if (j + 3 < i) sum[3] = fmaf(four.w, x[j + 3], sum[3]);
    }
    x[i] = -((sum[0] + sum[1]) + (sum[2] + sum[3]));
    store_one(inverse, i * kChunk + column, x[i] * factor);
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
  const int row = warp * 16 + lane / 4, within = lane % 4 * 2;
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
        store_two(record + Record::kScores, t * kChunk + s, score[0], score[1]);
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
  if constexpr (Gate::kSolved) {
    __syncthreads();
    if (thread < kChunk) invert_column(matrix, thread, rows.weight[thread], record + Record::kInverse);
  }
}

}  // namespace millrace::chunked
