// Gate and up of prompts on Hopper: a full GEMM that stores silu(gate) * up, so that gates and ups never are in memory.
// Tiles of 128 tokens x 256 rows of weights, two warpgroups with 64 tokens each. Two blocks form a cluster: they take
// the same rows of weights, half of which each of them fetches for both. Blocks stay and walk from tile to tile; a
// loader warp is ahead of the products by four stages, also while a tile is stored.
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/tensor_map.h"
#include "kernels/linear/cuda/wide_gated_store.cuh"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kDepth = 64, kRowBytes = kDepth * 2;  // of a stage: one row of the 128-byte swizzle
constexpr int kTokens = 128, kHalfRows = kWideRows / 2;
constexpr int kStages = 4, kCluster = 2;
constexpr int kXBytes = kTokens * kRowBytes, kHalfBytes = kHalfRows * kRowBytes, kStageBytes = kXBytes + 2 * kHalfBytes;
constexpr int kGroups = 2, kWarps = 4 * kGroups, kThreads = 32 * (kWarps + 1);
constexpr int kSharedBytes = 1024 + kStages * kStageBytes + kGroups * kBoxes * kBoxBytes;
// Tiles of tokens that the device works on at a time, side by side: together with the rows of weights that are left
// for it they are few enough to come from the second-level cache.
constexpr int kSideBySide = 8;

struct WideParams {
  int iterations;  // stages along K
  int tiles, row_tiles, token_tiles;
  LinearOutput out;
};

// Which rows and tokens a block has of a tile.
struct Place {
  int row, token;
  __device__ __forceinline__ Place(const WideParams& p, int tile) {
    const int in_group = kSideBySide * p.row_tiles, group = tile / in_group, first = group * kSideBySide;
    const int width = min(kSideBySide, p.token_tiles - first), at = tile - group * in_group;
    row = at / width * kWideRows;
    token = ((first + at % width) * kCluster + cluster_rank()) * kTokens;
  }
};

struct Ring {
  uint8_t* stages;
  uint64_t *full, *empty;
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ uint8_t* at() const { return stages + stage * kStageBytes; }
  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

__device__ __forceinline__ void load_tile(Ring& ring, const CUtensorMap& weights, const CUtensorMap& x,
                                          const WideParams& p, const Place& place) {
  const int rank = cluster_rank();
#pragma unroll 1
  for (int i = 0; i < p.iterations; ++i, ring.advance()) {
    uint64_t* full = ring.full + ring.stage;
    wait_barrier(ring.empty + ring.stage, ring.parity ^ 1);
    arrive_expecting(full, kStageBytes);
    copy_box(ring.at(), x, i * kDepth, place.token, full);
    copy_box_to_all(ring.at() + kXBytes + rank * kHalfBytes, weights, i * kDepth, place.row + rank * kHalfRows, full,
                    (1 << kCluster) - 1);
  }
}

// A stage may be filled again when every warp of the cluster has done with it: each tells both loaders.
__device__ __forceinline__ void release(uint64_t* empty) {
  const int lane = threadIdx.x % 32;
  if (lane < kCluster) arrive_at(empty, lane);
}

template <class T>
__device__ __forceinline__ void multiply_tile(Ring& ring, const WideParams& p, int group, float (&sums)[kWideSums]) {
  uint64_t* previous = nullptr;
#pragma unroll 1
  for (int i = 0; i < p.iterations; ++i, ring.advance()) {
    wait_barrier(ring.full + ring.stage, ring.parity);
    const uint64_t a = matrix_descriptor(ring.at() + group * kBoxTokens * kRowBytes);
    const uint64_t b = matrix_descriptor(ring.at() + kXBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {  // descriptors count 16 bytes: 16 elements are 2
      WarpgroupProduct<T, kWideRows>::run(sums, a + 2 * step, b + 2 * step, i > 0 || step > 0);
    }
    commit_products();
    wait_products<1>();
    if (i > 0) release(previous);
    previous = ring.empty + ring.stage;
  }
  wait_products<0>();
  release(previous);
}

// kBoxed: y has the type of x, and can be reached by bulk copies.
template <class T, bool kBoxed>
__global__ void __launch_bounds__(kThreads, 1)
    wide_gated(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ CUtensorMap y, const __grid_constant__ WideParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t full[kStages], empty[kStages];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = static_cast<int>(blockIdx.x) / kCluster, step = static_cast<int>(gridDim.x) / kCluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(full + i, 1);
      init_barrier(empty + i, kWarps * kCluster);
    }
    publish_barriers();
  }
  cluster_barrier();  // the other block's barriers stand before something is sent to it
  Ring ring{aligned, full, empty};
  wait_for_previous_kernel();
  if (warp == kWarps) {
    if (lane == 0) {
      for (int tile = first; tile < p.tiles; tile += step) load_tile(ring, weights, x, p, Place(p, tile));
      let_next_kernel_start();
    }
  } else {
    const int group = warp / 4;
    uint8_t* boxes = aligned + kStages * kStageBytes + group * kBoxes * kBoxBytes;
    for (int tile = first; tile < p.tiles; tile += step) {
      const Place place(p, tile);
      const int token = place.token + group * kBoxTokens;
      float sums[kWideSums];
      multiply_tile<T>(ring, p, group, sums);
      add_biases(p.out, place.row, sums);
      if constexpr (kBoxed) {
        store_boxes<T>(sums, boxes, group, y, place.row / 2, token);
      } else {
        store_any(sums, reinterpret_cast<float*>(boxes), group, p.out, place.row / 2, token);
      }
    }
    if (threadIdx.x % 128 == 0) wait_boxes_stored();
  }
  __syncwarp();
  cluster_meet();  // the other block's last messages have come
#endif
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return p.gate_up && is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && p.m > 8 && has_clusters(limits);
}

int64_t row_tiles(const CudaLinearProblem& p) { return ceil_div(p.n, kWideRows); }
int64_t token_tiles(const CudaLinearProblem& p) { return ceil_div(p.m, kTokens * kCluster); }

// All clusters take the same time for a tile, so the last round costs as much as the others.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int clusters = limits.sms / kCluster;
  const double tile = 2.0 * kWideRows * kTokens * kCluster * static_cast<double>(p.k);
  const auto rounds = static_cast<double>(ceil_div(row_tiles(p) * token_tiles(p), clusters));
  return 6 + rounds * tile * clusters / (0.94 * limits.flops_per_us);
}

bool can_box(const CudaLinearProblem& p, const CudaLinearArgs& a) {
  return p.y == p.x && !p.accumulate && a.sum_squares == nullptr && reinterpret_cast<uintptr_t>(a.y) % 16 == 0 &&
         a.y_stride % 8 == 0;
}

template <class T, bool kBoxed>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                   const CudaStep& step) {
  CUtensorMap weights, x, y{};
  if (!describe(weights, p.format, a.weights, p.n, p.k, packed_linear_stride(p.k), {kDepth, kHalfRows, true}) ||
      !describe(x, p.x, a.x, p.m, p.k, a.x_stride, {kDepth, kTokens, true}) ||
      (kBoxed && !describe(y, p.y, a.y, p.m, p.n / 2, a.y_stride, {kBoxColumns, kBoxTokens, true}))) {
    return cudaErrorInvalidValue;
  }
  WideParams params{};
  params.iterations = static_cast<int>(ceil_div(p.k, kDepth));
  params.row_tiles = static_cast<int>(row_tiles(p));
  params.token_tiles = static_cast<int>(token_tiles(p));
  params.tiles = params.row_tiles * params.token_tiles;
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(kCluster * std::min(params.tiles, limits.sms / kCluster)));
  shape.threads = kThreads;
  shape.cluster = kCluster;
  shape.shared_bytes = kSharedBytes;
  return launch_kernel(wide_gated<T, kBoxed>, shape, step, weights, x, y, params);
}

template <class T>
cudaError_t launch_typed(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                         const CudaStep& step) {
  return can_box(p, a) ? launch<T, true>(p, a, limits, step) : launch<T, false>(p, a, limits, step);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.norm != nullptr || a.squares != nullptr || a.ahead.weights != nullptr) return cudaErrorInvalidValue;
  return p.format == DType::BF16 ? launch_typed<__nv_bfloat16>(p, a, limits, step)
                                 : launch_typed<__half>(p, a, limits, step);
}

}  // namespace

const CudaLinearKernel& wide_gated_kernel() {
  static constexpr CudaLinearKernel kKernel{"wide-gated", "full", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
