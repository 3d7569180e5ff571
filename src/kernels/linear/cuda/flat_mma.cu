// Flat GEMM with mma.sync: weights take the 16-row operand, tokens are padded to 8 only.
//
// Weights go from memory straight into the registers of the lanes that multiply them. The order of K inside a tensor-core
// step is free as long as both operands use the same: here lane t of a quad takes elements 8 t .. 8 t + 7 of every 32, so
// that a fragment is one 16-byte load from a row as the file holds it. The warps of a block share K, and so do the blocks
// of a cluster.
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"

namespace millrace {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTiles = 2;                      // of 16 rows
constexpr int kBlockRows = kTiles * kTileRows;
constexpr int kChunk = 64;                     // elements of K per warp and iteration: whole cache lines of a row
constexpr int kMaxTokens = 32;

struct Weights {  // [tile][row g or g + 8][32 elements of K each]
  uint4 at[kTiles][2][2];
};

template <class T>
__device__ __forceinline__ void load(Weights& w, const T* const (&rows)[kTiles][2], int k, int end) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int at = k + 32 * c;
        w.at[tile][half][c] = at < end ? load_pieces(rows[tile][half] + at) : uint4{0, 0, 0, 0};
      }
    }
  }
}

template <class T, int kGroups>
__global__ void __launch_bounds__(kThreads, kGroups <= 2 ? 2 : 1)
    flat_mma(const T* weights, int64_t stride, const T* x, int64_t x_stride, int k_split, int k, int splits,
             LinearOutput out) {
  extern __shared__ __align__(16) float partials[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_row = static_cast<int>(blockIdx.x) / splits * kBlockRows;
  const int first_token = static_cast<int>(blockIdx.y) * 8 * kGroups;
  const int begin = static_cast<int>(blockIdx.x) % splits * k_split, end = min(k, begin + k_split);
  let_next_kernel_start();

  const T* rows[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows[tile][half] = weights + min(first_row + tile * kTileRows + half * 8 + g, out.n - 1) * stride;
    }
  }
  // Blocks start at different places of K: rows a power of two apart would else ask the same memory channels all at once.
  const int rounds = max(0, (end - begin + kWarps * kChunk - 1) / (kWarps * kChunk));
  int round = static_cast<int>(blockIdx.x / splits % max(rounds, 1));
  const int lane_begin = begin + warp * kChunk + t * 8;
  int at = lane_begin + round * kWarps * kChunk;
  Weights ahead;
  load(ahead, rows, at, end);
  wait_for_previous_kernel();

  const T* x_row = x + (first_token + g) * x_stride;
  float sums[kGroups][kTiles][4] = {};
  for (int i = 0; i < rounds; ++i) {
    uint4 xs[kGroups][2];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const bool live = first_token + group * 8 + g < out.m && at + 32 * c < end;
        xs[group][c] = live ? load_shared_input(x_row + group * 8 * x_stride + at + 32 * c) : uint4{0, 0, 0, 0};
      }
    }
    const Weights now = ahead;
    round = round + 1 == rounds ? 0 : round + 1;
    at = lane_begin + round * kWarps * kChunk;
    if (i + 1 < rounds) load(ahead, rows, at, end);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 low = now.at[tile][0][c], high = now.at[tile][1][c];
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          mma<T>(sums[group][tile], low.x, high.x, low.y, high.y, xs[group][c].x, xs[group][c].y);
          mma<T>(sums[group][tile], low.z, high.z, low.w, high.w, xs[group][c].z, xs[group][c].w);
        }
      }
    }
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    float* place = partials + (warp * kTiles + tile) * 8 * kGroups * kTileStride;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) put_fragment(place, group * 8, sums[group][tile]);
  }
  finish_tiles(partials, kWarps, kTiles, 8 * kGroups, first_row, first_token, splits, kThreads, out);
}

int groups(int64_t m) { return m <= 8 ? 1 : m <= 16 ? 2 : 4; }

// Blocks along K if there is room for them beside the others: two fit on a multiprocessor.
int choose_splits(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t blocks = ceil_div(p.n, kBlockRows) * ceil_div(p.m, 8 * groups(p.m));
  int splits = 1;
  while (limits.capability >= 90 && splits < 8 && blocks * splits <= limits.sms &&
         p.k / (2 * splits) >= 2 * kWarps * kChunk) {
    splits *= 2;
  }
  return splits;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && limits.capability >= 80 &&
         ceil_div(p.m, kMaxTokens) <= 65535;
}

// Every 32 rows of weights read all of x, through the second-level cache, which is about 1.3 times as wide as memory; a
// block of tokens beyond the first finds the weights there too.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t row_blocks = ceil_div(p.n, kBlockRows), token_blocks = ceil_div(p.m, 8 * groups(p.m));
  const double streamed = stream_us(p, limits, row_blocks * choose_splits(p, limits), 2, 2.6);
  const double again = 2.0 * static_cast<double>(p.k) *
                       (static_cast<double>(row_blocks * p.m) + static_cast<double>((token_blocks - 1) * p.n));
  return streamed + 0.5 * again / (1.3 * limits.bytes_per_us);
}

template <class T, int kGroups>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  const int splits = choose_splits(p, limits);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, kBlockRows) * splits),
                    static_cast<unsigned>(ceil_div(p.m, 8 * kGroups)));
  shape.threads = kThreads;
  shape.cluster = splits;
  shape.shared_bytes = kWarps * kTiles * 8 * kGroups * kTileStride * sizeof(float);
  return launch_kernel(flat_mma<T, kGroups>, shape, step, static_cast<const T*>(a.weights), packed_linear_stride(p.k),
                       static_cast<const T*>(a.x), a.x_stride,
                       static_cast<int>(round_up(ceil_div(p.k, splits), kWarps * kChunk)), static_cast<int>(p.k), splits,
                       linear_output(p, a));
}

template <class T>
cudaError_t launch_tokens(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                          const CudaStep& step) {
  switch (groups(p.m)) {
    case 1: return launch<T, 1>(p, a, limits, step);
    case 2: return launch<T, 2>(p, a, limits, step);
    default: return launch<T, 4>(p, a, limits, step);
  }
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  return p.format == DType::BF16 ? launch_tokens<__nv_bfloat16>(p, a, limits, step)
                                 : launch_tokens<__half>(p, a, limits, step);
}

}  // namespace

const CudaLinearKernel& flat_mma_kernel() {
  static constexpr CudaLinearKernel kKernel{"flat-mma", "flat", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
