// Full GEMM on Hopper, for prompts: two warpgroups in turns. While one multiplies a tile of 128 tokens x 176 rows of
// weights, the other one stores the tile that it has multiplied, so the tensor cores need not wait. Two blocks form a
// cluster: they take the same rows of weights, half of which each of them fetches for both. Blocks stay and walk from
// tile to tile.
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/ping_store.cuh"
#include "kernels/linear/cuda/tensor_map.h"

#include <algorithm>

#ifdef MR_WIDE_KNOBS
extern int wide_group, wide_cluster, wide_skip;
#endif

namespace millrace {
namespace {

constexpr int kDepth = 64, kRowBytes = kDepth * 2;  // of a stage: one row of the 128-byte swizzle
constexpr int kTokens = 128, kRows = kPingRows, kHalfRows = kRows / 2;
constexpr int kStages = 5, kCluster = 2;
constexpr int kXBytes = kTokens * kRowBytes, kHalfBytes = kHalfRows * kRowBytes, kStageBytes = kXBytes + 2 * kHalfBytes;
constexpr int kGroups = 2, kThreads = 128 * (kGroups + 1);  // the loader has a warpgroup of its own, to give registers
constexpr int kSharedBytes = 1024 + kStages * kStageBytes + 4 * kGroups * kPingBoxBytes;

struct WideParams {
  int iterations;  // stages along K
  int tiles, row_tiles, token_tiles, group;
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
    token = ((first + at % width) * kCluster + cluster_rank()) * kTokens;
  }
};

struct Ring {
  uint8_t* stages;
  uint64_t *full, *empty;
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ uint8_t* at() const { return stages + stage * kStageBytes; }
  __device__ __forceinline__ void advance(int count = 1) {
    const int to = stage + count;
    parity ^= to / kStages % 2;
    stage = to % kStages;
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

// A stage may be filled again when the warps of both blocks have done with it: each tells both loaders.
__device__ __forceinline__ void release(uint64_t* empty) {
  const int lane = threadIdx.x % 32;
  if (lane < kCluster) arrive_at(empty, lane);
}

// sums: of the first 64 tokens, and of the others. A warpgroup whose turn it is knows that all stages before its own
// have come: else it could take the last round of a stage for the next but one.
template <class T>
__device__ __forceinline__ void multiply_tile(Ring& ring, const WideParams& p, uint64_t* next_turn,
                                              float (&sums)[2][kPingSums]) {
  uint64_t* previous = nullptr;
#pragma unroll 1
  for (int i = 0; i < p.iterations; ++i, ring.advance()) {
    wait_barrier(ring.full + ring.stage, ring.parity);
    const uint64_t a = matrix_descriptor(ring.at()), b = matrix_descriptor(ring.at() + kXBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {  // descriptors count 16 bytes: 16 elements are 2
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        WarpgroupProduct<T, kRows>::run(sums[half], a + half * (64 * kRowBytes / 16) + 2 * step, b + 2 * step,
                                        i > 0 || step > 0);
      }
    }
    commit_products();
    wait_products<1>();
    if (i > 0) release(previous);
    previous = ring.empty + ring.stage;
  }
  if (threadIdx.x % 128 == 0) arrive(next_turn);
  wait_products<0>();
  release(previous);
}

template <class T, PingStore kStore>
__global__ void __launch_bounds__(kThreads, 1)
    wide_ping(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
              const __grid_constant__ CUtensorMap y, const __grid_constant__ WideParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t full[kStages], empty[kStages], turns[kGroups];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = static_cast<int>(blockIdx.x) / kCluster, step = static_cast<int>(gridDim.x) / kCluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(full + i, 1);
      init_barrier(empty + i, 4 * kCluster);
    }
    for (int i = 0; i < kGroups; ++i) init_barrier(turns + i, 1);
    publish_barriers();
  }
  cluster_barrier();  // the other block's barriers stand before something is sent to it
  Ring ring{aligned, full, empty};
  wait_for_previous_kernel();
  if (warp >= 4 * kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (warp == 4 * kGroups && lane == 0) {
      for (int tile = first; tile < p.tiles; tile += step) load_tile(ring, weights, x, p, Place(p, tile));
      let_next_kernel_start();
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int group = warp / 4;
    uint8_t* box = aligned + kStages * kStageBytes + warp * kPingBoxBytes;
    ring.advance(group * p.iterations);
    uint32_t turn = 1 - group;  // the first group's first turn has come
    for (int tile = first + group * step; tile < p.tiles; tile += kGroups * step, ring.advance(p.iterations)) {
      const Place place(p, tile);
      float sums[2][kPingSums];
      wait_barrier(turns + group, turn);
      multiply_tile<T>(ring, p, turns + 1 - group, sums);
      turn ^= 1;
      const int token = place.token + warp % 4 * 16;
      store_sums<T, kStore>(sums[0], box, y, p.out, place.row, token);
      store_sums<T, kStore>(sums[1], box, y, p.out, place.row, token + 64);
    }
    if (lane == 0) wait_boxes_stored();
    __syncwarp();
  }
  cluster_meet();  // the other block's last messages have come
#endif
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && p.m > 8 && has_clusters(limits);
}

struct Cut {
  int row_tiles, token_tiles, clusters;
};

Cut cut_of(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t rows = ceil_div(p.n, kRows), tokens = ceil_div(p.m, kTokens * kCluster);
  return {int(rows), int(tokens), int(std::min<int64_t>(rows * tokens, limits.sms / kCluster))};
}

double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const Cut cut = cut_of(p, limits);
  const double waves = double(ceil_div(int64_t{cut.row_tiles} * cut.token_tiles, limits.sms / kCluster));
  const double flops = 2.0 * kRows * kTokens * kCluster * double(p.k), rate = limits.flops_per_us * kCluster / limits.sms;
  return 6 + waves * flops / rate;
}

PingStore store_of(const CudaLinearProblem& p, const CudaLinearArgs& a) {
  const int64_t size = p.y == DType::F32 ? 4 : 2;
  const bool boxed =
      reinterpret_cast<uintptr_t>(a.y) % 16 == 0 && a.y_stride * size % 16 == 0 && a.sum_squares == nullptr;
  if (boxed && p.gate_up && p.y == p.x && !p.accumulate) return PingStore::Gated;
  if (boxed && !p.gate_up && p.y == p.x && !p.accumulate) return PingStore::Halves;
  if (boxed && !p.gate_up && p.y == DType::F32) return PingStore::Floats;
  return PingStore::Direct;
}

template <class T, PingStore kStore>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                   const CudaStep& step) {
  const Cut cut = cut_of(p, limits);
  CUtensorMap weights, x, y{};
  bool described =
      describe(weights, p.format, a.weights, p.n, p.k, packed_linear_stride(p.k), {kDepth, kHalfRows, true}) &&
      describe(x, p.x, a.x, p.m, p.k, a.x_stride, {kDepth, kTokens, true});
  if (kStore != PingStore::Direct) {
    const TensorBox box{kPingColumns, p.y == DType::F32 ? 8 : 16, false};
    described = described && describe(y, p.y, a.y, p.m, p.gate_up ? p.n / 2 : p.n, a.y_stride, box);
  }
  if (!described) return cudaErrorInvalidValue;
  WideParams params{};
  params.iterations = static_cast<int>(ceil_div(p.k, kDepth));
  params.row_tiles = cut.row_tiles;
  params.token_tiles = cut.token_tiles;
  params.tiles = cut.row_tiles * cut.token_tiles;
#ifdef MR_WIDE_KNOBS
  params.group = wide_group;
#else
  params.group = 8;
#endif
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(cut.clusters * kCluster));
  shape.threads = kThreads;
  shape.cluster = kCluster;
  shape.shared_bytes = kSharedBytes;
  return launch_kernel(wide_ping<T, kStore>, shape, step, weights, x, y, params);
}

template <class T>
cudaError_t launch_typed(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                         const CudaStep& step) {
  switch (store_of(p, a)) {
    case PingStore::Gated:
      return launch<T, PingStore::Gated>(p, a, limits, step);
    case PingStore::Halves:
      return launch<T, PingStore::Halves>(p, a, limits, step);
    case PingStore::Floats:
      return launch<T, PingStore::Floats>(p, a, limits, step);
    default:
      return launch<T, PingStore::Direct>(p, a, limits, step);
  }
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.norm != nullptr || a.squares != nullptr || a.ahead.weights != nullptr) return cudaErrorInvalidValue;
  return p.format == DType::BF16 ? launch_typed<__nv_bfloat16>(p, a, limits, step)
                                 : launch_typed<__half>(p, a, limits, step);
}

}  // namespace

const CudaLinearKernel& wide_ping_kernel() {
  static constexpr CudaLinearKernel kKernel{"ping", "full", can_run, estimate_us, run};
  return kKernel;
}

}  // namespace millrace
