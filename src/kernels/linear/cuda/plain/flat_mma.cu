// Flat GEMM with mma.sync: weights are the 16-row operand, and tokens are padded to a multiple of 8 only.
//
// Asynchronous copies pipeline the weights through shared memory, 512 bytes of a row at a time. The warps of a block
// share K, and so do the blocks of a cluster. The order of K within a tensor-core step is free as long as both operands
// use the same: lane t of a quad takes elements 8 t .. 8 t + 7 of every 32, so that a fragment is one 16-byte load from
// a row in the file's order. x goes from the caches straight to registers, since each warp has its own part of K.
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kDepth = 256;              // elements of K per stage: 32 per warp
constexpr int kPitch = kDepth * 2 + 64;  // bytes; rows g and g + 1 fall into different banks

// Groups of eight tokens, and tiles of 16 rows per block. A block reads x once, so more tiles save reads of x; two,
// three or four tiles may balance the multiprocessors best.
template <int kGroups, int kTiles>
struct Shape {
  static constexpr int kRows = kTiles * kTileRows;
  static constexpr int kStages = kTiles == 2 ? 5 : kTiles == 3 ? 4 : 3;  // so that two blocks fit on a multiprocessor
  static constexpr int kStageBytes = kRows * kPitch;
  static constexpr int kPartialBytes = kWarps * kTiles * 8 * kGroups * kTileStride * 4;
  static constexpr int kSharedBytes = kStages * kStageBytes > kPartialBytes ? kStages* kStageBytes : kPartialBytes;
};

// Copies 16 bytes into shared memory, or zeros if not `live`.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool live) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], [%1], 16, %2, %3;" ::"r"(shared_address(to)),
               "l"(from), "r"(live ? 16 : 0), "l"(evict_first_policy())
               : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

struct FlatParams {
  const void* weights;
  int64_t stride;  // of the weights, in elements
  const void* x;
  int64_t x_stride;
  int k, k_split, splits;
  LinearOutput out;
};

// Each warp copies whole row pieces; a lane copies 16 bytes of each.
template <class T, int kRows>
__device__ __forceinline__ void copy_stage(const FlatParams& p, uint8_t* stage, int first_row, int column, int end) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, at = column + lane * 8;
  const T* from = static_cast<const T*>(p.weights) + (at < end ? at : 0);
#pragma unroll
  for (int r = warp; r < kRows; r += kWarps) {
    copy_async(stage + r * kPitch + lane * 16, from + min(first_row + r, p.out.n - 1) * p.stride, at < end);
  }
}

// Loads the lane's elements of its token in each group.
template <class T, int kGroups>
__device__ __forceinline__ void load_x(const FlatParams& p, const T* x, int tokens, int column, int end,
                                       uint4 (&xs)[kGroups]) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const bool live = group * 8 < tokens && column < end;
    xs[group] = live ? load_shared_input(x + group * 8 * p.x_stride + column) : uint4{0, 0, 0, 0};
  }
}

template <class T, int kGroups, int kTiles>
__device__ __forceinline__ void multiply_stage(const uint8_t* stage, const uint4 (&xs)[kGroups],
                                               float (&sums)[kGroups][kTiles][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint8_t* from = stage + lane / 4 * kPitch + warp * 64 + lane % 4 * 16;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const uint4 low = *reinterpret_cast<const uint4*>(from + tile * kTileRows * kPitch);
    const uint4 high = *reinterpret_cast<const uint4*>(from + (tile * kTileRows + 8) * kPitch);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      mma<T>(sums[group][tile], low.x, high.x, low.y, high.y, xs[group].x, xs[group].y);
      mma<T>(sums[group][tile], low.z, high.z, low.w, high.w, xs[group].z, xs[group].w);
    }
  }
}

template <class T, int kGroups, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) flat_mma(const __grid_constant__ FlatParams p) {
  using S = Shape<kGroups, kTiles>;
  extern __shared__ __align__(128) uint8_t shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int block = static_cast<int>(blockIdx.x) / p.splits, first_row = block * S::kRows;
  const int first_token = static_cast<int>(blockIdx.y) * 8 * kGroups;
  const int begin = static_cast<int>(blockIdx.x) % p.splits * p.k_split, end = min(p.k, begin + p.k_split);
  const int count = max(0, (end - begin + kDepth - 1) / kDepth);
  // Blocks start at different positions in K: otherwise rows that are a power of two apart would all hit the same
  // memory channels.
  const int start = count > 0 ? block % count : 0;
  const auto column = [&](int i) { return begin + (start + i < count ? start + i : start + i - count) * kDepth; };
  let_next_kernel_start();
#pragma unroll
  for (int i = 0; i < S::kStages - 1; ++i) {
    if (i < count) copy_stage<T, S::kRows>(p, shared + i * S::kStageBytes, first_row, column(i), end);
    commit_copies();
  }
  wait_for_previous_kernel();

  const int tokens = p.out.m - first_token - lane / 4, lane_column = warp * 32 + lane % 4 * 8;
  const T* x = static_cast<const T*>(p.x) + (first_token + lane / 4) * p.x_stride;
  uint4 xs[kGroups];
  if (count > 0) load_x<T, kGroups>(p, x, tokens, column(0) + lane_column, end, xs);
  float sums[kGroups][kTiles][4] = {};
  int stage = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    wait_copies<S::kStages - 2>();
    __syncthreads();  // stage i has arrived, and all warps are done with the previous stage
    uint4 now[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) now[group] = xs[group];
    if (i + 1 < count) load_x<T, kGroups>(p, x, tokens, column(i + 1) + lane_column, end, xs);
    const int refill = stage == 0 ? S::kStages - 1 : stage - 1, next = i + S::kStages - 1;
    if (next < count) copy_stage<T, S::kRows>(p, shared + refill * S::kStageBytes, first_row, column(next), end);
    commit_copies();
    multiply_stage<T, kGroups, kTiles>(shared + stage * S::kStageBytes, now, sums);
    stage = stage + 1 == S::kStages ? 0 : stage + 1;
  }

  __syncthreads();  // partial sums overwrite the stages
  float* partials = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    float* place = partials + (warp * kTiles + tile) * 8 * kGroups * kTileStride;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) put_fragment(place, group * 8, sums[group][tile]);
  }
  finish_tiles(partials, kWarps, kTiles, 8 * kGroups, first_row, first_token, p.splits, kThreads, p.out);
}

int groups(int64_t m) { return m <= 8 ? 1 : m <= 16 ? 2 : 4; }

struct Choice {
  int tiles, splits;
  double us;
};

// The multiprocessor with the most rows determines the time. It can exceed its fair share of the bandwidth slightly.
// Each block of rows reads all of x through the L2 cache, whose bandwidth is about 1.3 times that of memory. Blocks of
// tokens beyond the first also find the weights there.
Choice cost(const CudaLinearProblem& p, const CudaLimits& limits, int tiles, int splits) {
  const int64_t row_blocks = ceil_div(p.n, tiles * kTileRows), token_blocks = ceil_div(p.m, 8 * groups(p.m));
  const int64_t blocks = row_blocks * token_blocks * splits;
  const double k = static_cast<double>(p.k), share = limits.bytes_per_us / limits.sms;
  const double block_bytes = tiles * kTileRows * 2 * k / splits;
  const double busiest_us = static_cast<double>(ceil_div(blocks, limits.sms)) * block_bytes / (1.3 * share);
  const double streamed_us = stream_us(p, limits, blocks, 2, 3.8);
  const double again = 2 * k * static_cast<double>(row_blocks * p.m + (token_blocks - 1) * p.n);
  const double join_us = splits > 1 ? 0.8 + 0.05 * splits : 0;
  return {tiles, splits, std::max(streamed_us, 3.8 + busiest_us) + 0.5 * again / (1.3 * limits.bytes_per_us) + join_us};
}

Choice choose(const CudaLinearProblem& p, const CudaLimits& limits) {
  Choice best = cost(p, limits, 2, 1);
  // Several blocks of tokens fill the device without splits.
  const int most_splits = has_clusters(limits) && p.m <= 32 ? 8 : 1;
  for (const int tiles : {2, 3, 4}) {
    if (tiles > 2 && shared_kilobytes(limits) < 110) continue;
    for (int splits = 1; splits <= most_splits && p.k / splits >= 2 * kDepth; splits *= 2) {
      const Choice choice = cost(p, limits, tiles, splits);
      if (choice.us < best.us) best = choice;
    }
  }
  return best;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && limits.capability >= 80 &&
         ceil_div(p.m, 32) <= 65535 && !has_rows_for_all(p, limits);
}

// The estimate was found 8 to 60 % too low on Hopper, where other kernels are faster whenever they can run.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  return choose(p, limits).us * (has_clusters(limits) ? 1.15 : 1.0);
}

template <class T, int kGroups, int kTiles>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, int splits, const CudaStep& step) {
  using S = Shape<kGroups, kTiles>;
  FlatParams params{};
  params.weights = a.weights;
  params.stride = packed_linear_stride(p.k);
  params.x = a.x;
  params.x_stride = a.x_stride;
  params.k = static_cast<int>(p.k);
  params.splits = splits;
  params.k_split = static_cast<int>(round_up(ceil_div(p.k, splits), kDepth));
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid =
      dim3(static_cast<unsigned>(ceil_div(p.n, S::kRows) * splits), static_cast<unsigned>(ceil_div(p.m, 8 * kGroups)));
  shape.threads = kThreads;
  shape.cluster = splits;
  shape.shared_bytes = S::kSharedBytes;
  return launch_kernel(flat_mma<T, kGroups, kTiles>, shape, step, params);
}

template <class T, int kGroups>
cudaError_t launch_tiles(const CudaLinearProblem& p, const CudaLinearArgs& a, const Choice& choice,
                         const CudaStep& step) {
  switch (choice.tiles) {
    case 2:
      return launch<T, kGroups, 2>(p, a, choice.splits, step);
    case 3:
      return launch<T, kGroups, 3>(p, a, choice.splits, step);
    default:
      return launch<T, kGroups, 4>(p, a, choice.splits, step);
  }
}

template <class T>
cudaError_t launch_tokens(const CudaLinearProblem& p, const CudaLinearArgs& a, const Choice& choice,
                          const CudaStep& step) {
  switch (groups(p.m)) {
    case 1:
      return launch_tiles<T, 1>(p, a, choice, step);
    case 2:
      return launch_tiles<T, 2>(p, a, choice, step);
    default:
      return launch_tiles<T, 4>(p, a, choice, step);
  }
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  const Choice choice = choose(p, limits);
  return p.format == DType::BF16 ? launch_tokens<__nv_bfloat16>(p, a, choice, step)
                                 : launch_tokens<__half>(p, a, choice, step);
}

}  // namespace

const CudaLinearKernel& flat_mma_kernel() {
  static constexpr CudaLinearKernel kKernel{"flat-mma", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
