// Full GEMM on Hopper, for prompts: tiles of 128 tokens x 256 rows of weights, two warpgroups with 64 tokens each. Two
// blocks form a cluster: they take the same rows of weights, half of which each of them fetches for both. Blocks stay
// and walk from tile to tile; a loader warp is ahead of the products by four stages, also while a tile is stored.
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/tensor_map.h"
#include "kernels/linear/cuda/wide_store.cuh"

#include <algorithm>

#ifdef MR_WIDE_KNOBS
int wide_group = 8, wide_cluster = 2, wide_skip = 0;
#endif

namespace millrace {
namespace {

constexpr int kDepth = 64, kRowBytes = kDepth * 2;  // of a stage: one row of the 128-byte swizzle
constexpr int kTokens = 128, kRows = 256, kHalfRows = kRows / 2;
#ifdef MR_STAGES
constexpr int kStages = MR_STAGES;
#else
constexpr int kStages = 4;
#endif
constexpr int kXBytes = kTokens * kRowBytes, kHalfBytes = kHalfRows * kRowBytes, kStageBytes = kXBytes + 2 * kHalfBytes;
constexpr int kGroups = 2, kWarps = 4 * kGroups, kThreads = 32 * (kWarps + 1);
constexpr int kSharedBytes = 1024 + kStages * kStageBytes + kGroups * kBoxesAtOnce * kWideBoxBytes;

struct WideParams {
  int iterations;  // stages along K
  int tiles, row_tiles, token_tiles, group;
  int cluster;  // blocks that share their weights
#ifdef MR_WIDE_KNOBS
  int skip;
#endif
  LinearOutput out;
};

// Which rows and tokens a block has of a tile. Tiles go through a group of tokens row by row of tiles: what the device
// works on at a time then takes few rows and few tokens, and comes from the second-level cache.
struct Place {
  int row, token;
  __device__ __forceinline__ Place(const WideParams& p, int tile) {
    const int in_group = p.group * p.row_tiles, group = tile / in_group, first = group * p.group;
    const int width = min(p.group, p.token_tiles - first), at = tile - group * in_group;
    row = at / width * kRows;
    token = ((first + at % width) * p.cluster + cluster_rank()) * kTokens;
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
#ifdef MR_WIDE_KNOBS
    if (p.skip & 4) continue;
    const int at = p.skip & 2 ? 0 : i * kDepth;
#else
    const int at = i * kDepth;
#endif
    wait_barrier(ring.empty + ring.stage, ring.parity ^ 1);
    arrive_expecting(full, kStageBytes);
    copy_box(ring.at(), x, at, place.token, full);
    if (p.cluster == 2) {
      copy_box_to_all(ring.at() + kXBytes + rank * kHalfBytes, weights, at, place.row + rank * kHalfRows, full,
                      3);
    } else {
      copy_box(ring.at() + kXBytes, weights, at, place.row, full);
      copy_box(ring.at() + kXBytes + kHalfBytes, weights, at, place.row + kHalfRows, full);
    }
  }
}

// A stage may be filled again when every warp of the cluster has done with it: each tells all blocks that fill it.
__device__ __forceinline__ void release(uint64_t* empty, int cluster) {
  const int lane = threadIdx.x % 32;
  if (lane < cluster) arrive_at(empty, lane);
}

template <class T>
__device__ __forceinline__ void multiply_tile(Ring& ring, const WideParams& p, int group, float (&sums)[kWideSums]) {
  uint64_t* previous = nullptr;
#pragma unroll 1
  for (int i = 0; i < p.iterations; ++i, ring.advance()) {
#ifdef MR_WIDE_KNOBS
    if (!(p.skip & 4))
#endif
    wait_barrier(ring.full + ring.stage, ring.parity);
    const uint64_t a = matrix_descriptor(ring.at() + group * 64 * kRowBytes);
    const uint64_t b = matrix_descriptor(ring.at() + kXBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {  // descriptors count 16 bytes: 16 elements are 2
      WarpgroupProduct<T, kRows>::run(sums, a + 2 * step, b + 2 * step, i > 0 || step > 0);
    }
    commit_products();
    wait_products<1>();
    if (i > 0) release(previous, p.cluster);
    previous = ring.empty + ring.stage;
  }
  wait_products<0>();
  release(previous, p.cluster);
}

template <class T, WideStore kStore>
__device__ __forceinline__ void store_tile(float (&sums)[kWideSums], const WideBoxes& boxes, const CUtensorMap& y,
                                           const LinearOutput& out, int row, int token) {
  add_biases(out, row, sums);
  if constexpr (kStore == WideStore::Direct) {
    store_direct(sums, out, row, token);
  } else if constexpr (kStore == WideStore::Floats) {
    store_floats(sums, boxes, y, out.accumulate, row, token);
  } else {
    store_halves<T, kStore == WideStore::Gated>(sums, boxes, y, row, token);
  }
}

template <class T, WideStore kStore>
__global__ void __launch_bounds__(kThreads, 1)
    wide_wgmma(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ CUtensorMap y, const __grid_constant__ WideParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t full[kStages], empty[kStages];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = static_cast<int>(blockIdx.x) / p.cluster, step = static_cast<int>(gridDim.x) / p.cluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(full + i, 1);
      init_barrier(empty + i, kWarps * p.cluster);
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
    __syncwarp();
  } else {
    const int group = warp / 4;
    const WideBoxes boxes(aligned + kStages * kStageBytes, group);
    for (int tile = first; tile < p.tiles; tile += step) {
      const Place place(p, tile);
      float sums[kWideSums];
      multiply_tile<T>(ring, p, group, sums);
#ifdef MR_WIDE_KNOBS
      if ((p.skip & 1) && sums[5] != 1.2345f) continue;
#endif
      store_tile<T, kStore>(sums, boxes, y, p.out, place.row, place.token + group * kBoxTokens);
    }
    boxes.finish();
    __syncwarp();
  }
  cluster_meet();  // the other block's last messages have come
#endif
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && p.m > 8 && has_clusters(limits);
}

struct Cut {
  int row_tiles, token_tiles, clusters, cluster;
};

Cut cut_of(const CudaLinearProblem& p, const CudaLimits& limits) {
#ifdef MR_WIDE_KNOBS
  const int cluster = wide_cluster;
#else
  constexpr int cluster = 2;
#endif
  const int64_t rows = ceil_div(p.n, kRows), tokens = ceil_div(p.m, kTokens * cluster);
  return {int(rows), int(tokens), int(std::min<int64_t>(rows * tokens, limits.sms / cluster)), cluster};
}

double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const Cut cut = cut_of(p, limits);
  const double waves = double(ceil_div(int64_t{cut.row_tiles} * cut.token_tiles, limits.sms / cut.cluster));
  const double flops = 2.0 * kRows * kTokens * cut.cluster * double(p.k), rate = limits.flops_per_us * cut.cluster / limits.sms;
  return 6 + waves * flops / rate;
}

WideStore store_of(const CudaLinearProblem& p, const CudaLinearArgs& a) {
  const int64_t size = p.y == DType::F32 ? 4 : 2;
  const bool boxed = reinterpret_cast<uintptr_t>(a.y) % 16 == 0 && a.y_stride * size % 16 == 0 && a.sum_squares == nullptr;
  if (boxed && p.gate_up && p.y == p.x && !p.accumulate) return WideStore::Gated;
  if (boxed && !p.gate_up && p.y == p.x && !p.accumulate) return WideStore::Halves;
  if (boxed && !p.gate_up && p.y == DType::F32) return WideStore::Floats;
  return WideStore::Direct;
}

template <class T, WideStore kStore>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                   const CudaStep& step) {
  const Cut cut = cut_of(p, limits);
  CUtensorMap weights, x, y{};
  bool described =
      describe(weights, p.format, a.weights, p.n, p.k, packed_linear_stride(p.k), {kDepth, kHalfRows, true}) &&
      describe(x, p.x, a.x, p.m, p.k, a.x_stride, {kDepth, kTokens, true});
  if (kStore != WideStore::Direct) {
    const int columns = kBoxRowBytes / (p.y == DType::F32 ? 4 : 2);
    described = described && describe(y, p.y, a.y, p.m, p.gate_up ? p.n / 2 : p.n, a.y_stride, {columns, kBoxTokens, true});
  }
  if (!described) return cudaErrorInvalidValue;
  WideParams params{};
  params.iterations = static_cast<int>(ceil_div(p.k, kDepth));
  params.row_tiles = cut.row_tiles;
  params.token_tiles = cut.token_tiles;
  params.tiles = cut.row_tiles * cut.token_tiles;
#ifdef MR_WIDE_KNOBS
  params.group = wide_group;
  params.skip = wide_skip;
#else
  params.group = 8;
#endif
  params.cluster = cut.cluster;
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(cut.clusters * cut.cluster));
  shape.threads = kThreads;
  shape.cluster = cut.cluster;
  shape.shared_bytes = kSharedBytes;
  return launch_kernel(wide_wgmma<T, kStore>, shape, step, weights, x, y, params);
}

template <class T>
cudaError_t launch_typed(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                         const CudaStep& step) {
  switch (store_of(p, a)) {
    case WideStore::Gated:
      return launch<T, WideStore::Gated>(p, a, limits, step);
    case WideStore::Halves:
      return launch<T, WideStore::Halves>(p, a, limits, step);
    case WideStore::Floats:
      return launch<T, WideStore::Floats>(p, a, limits, step);
    default:
      return launch<T, WideStore::Direct>(p, a, limits, step);
  }
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.norm != nullptr || a.squares != nullptr || a.ahead.weights != nullptr) return cudaErrorInvalidValue;
  return p.format == DType::BF16 ? launch_typed<__nv_bfloat16>(p, a, limits, step)
                                 : launch_typed<__half>(p, a, limits, step);
}

}  // namespace

const CudaLinearKernel& wide_wgmma_kernel() {
  static constexpr CudaLinearKernel kKernel{"wide", "full", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
