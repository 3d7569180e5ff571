// 16-bit weights on the tensor cores. A block multiplies some rows of one group's matrix with a tile of its pairs: the
// weights are the 16-row operand, pairs the other one. The grid covers the worst routing; a block finds its tile in the
// offsets, and blocks without one end at once.
//
// A tile of 16 rows of a gated layer has eight rows of gate and the eight rows of up that belong to them, so that one
// lane holds both products.
#include "hardware/cuda/check.h"
#include "kernels/cuda/cost.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/staged_outputs.cuh"
#include "kernels/grouped_linear/cuda/sum_pairs.h"
#include "kernels/grouped_linear/cuda/tile_copies.cuh"
#include "kernels/linear/cuda/launch_kernel.h"

namespace millrace {
namespace {

// kWarpsM x kWarpsN warps; each has kTiles tiles of 16 rows times kGroups groups of eight pairs.
template <int kWarpsM_, int kWarpsN_, int kTiles_, int kGroups_, int kStages_, int kBlocks_>
struct Shape {
  static constexpr int kWarpsM = kWarpsM_, kWarpsN = kWarpsN_, kTiles = kTiles_, kGroups = kGroups_;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kRows = 16 * kWarpsM * kTiles, kPairs = 8 * kWarpsN * kGroups;
  static constexpr int kSums = 4 * kTiles * kGroups;
  static constexpr int kStageBytes = (kRows + kPairs) * kTileRowBytes;
  static constexpr size_t kSharedBytes = static_cast<size_t>(kStages) * kStageBytes + 1024;
  static constexpr bool kLarge = kPairs >= 128;
  static constexpr double kPartOfBandwidth = kPairs <= 16 ? 0.93 : kLarge ? 0.63 : 0.8;
  static_assert(!kLarge || StagedOutputs::bytes(kPairs, kRows) <= kStages * kStageBytes);
};

using Flat16 = Shape<4, 1, 1, 2, 5, 4>;
using Flat64 = Shape<4, 1, 1, 8, 4, 3>;
using Large = Shape<4, 2, 2, 8, 3, 2>;

// Matrix row of row `row` of the block's tile. Rows beyond the matrix repeat its last one; their products are dropped.
template <class S>
__device__ __forceinline__ int matrix_row(const GroupedParams& p, int row) {
  const int block = static_cast<int>(blockIdx.x);
  if (p.half == 0) return min(block * S::kRows + row, p.n - 1);
  const int output = min(block * (S::kRows / 2) + row / 16 * 8 + row % 8, p.half - 1);
  return row % 16 < 8 ? output : p.half + output;
}

template <class T, class S>
__device__ __forceinline__ void multiply_stage(const uint8_t* stage, int count, float (&sums)[S::kSums]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint8_t* x = stage + S::kRows * kTileRowBytes;
  const int warp_m = warp % S::kWarpsM, first_pair = warp / S::kWarpsM * 8 * S::kGroups;
  const uint32_t weights = shared_address(stage), pairs = shared_address(x);
#pragma unroll
  for (int step = 0; step < kTileColumns / 16; ++step) {
    uint32_t a[S::kTiles][4];
#pragma unroll
    for (int tile = 0; tile < S::kTiles; ++tile) {
      load_fragment(a[tile], weights + tile_offset((warp_m * S::kTiles + tile) * 16 + lane % 16, 2 * step + lane / 16));
    }
#pragma unroll
    for (int group = 0; group < S::kGroups; group += 2) {
      if (first_pair + 8 * group >= count) continue;
      uint32_t b[4];
      load_fragment(b, pairs + tile_offset(first_pair + 8 * (group + lane / 16) + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int tile = 0; tile < S::kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int at = 4 * (tile * S::kGroups + group + i);
          float d[4] = {sums[at], sums[at + 1], sums[at + 2], sums[at + 3]};
          mma<T>(d, a[tile][0], a[tile][1], a[tile][2], a[tile][3], b[2 * i], b[2 * i + 1]);
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[at + j] = d[j];
        }
      }
    }
  }
}

// `put(at, pair, output, gate, up)` takes each result; `output` counts from the block's first one.
template <class S, class Put>
__device__ __forceinline__ void for_each_output(const GroupedParams& p, const PairTile& tile,
                                                const float (&sums)[S::kSums], Put put) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_m = warp % S::kWarpsM, first_pair = warp / S::kWarpsM * 8 * S::kGroups;
#pragma unroll
  for (int group = 0; group < S::kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = first_pair + 8 * group + 2 * (lane % 4) + i;
      if (at >= tile.count) continue;
      const int pair = p.order[tile.first + at];
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
        const float low = sums[4 * (t * S::kGroups + group) + i], high = sums[4 * (t * S::kGroups + group) + 2 + i];
        const int row = warp_m * S::kTiles + t;  // in tiles
        if (p.half > 0) {
          put(at, pair, row * 8 + lane / 4, low, high);
        } else {
          put(at, pair, row * 16 + lane / 4, low, 0);
          put(at, pair, row * 16 + lane / 4 + 8, high, 0);
        }
      }
    }
  }
}

template <class S>
__device__ __forceinline__ void store_tile(const GroupedParams& p, const PairTile& tile, const float (&sums)[S::kSums],
                                           uint8_t* stages) {
  const int width = p.half > 0 ? S::kRows / 2 : S::kRows, first = static_cast<int>(blockIdx.x) * width;
  if constexpr (S::kLarge) {
    StagedOutputs staged(reinterpret_cast<float*>(stages), width);
    __syncthreads();  // all warps have read the last stage
    for_each_output<S>(p, tile, sums, [&](int at, int pair, int output, float gate, float up) {
      if (first + output < p.outputs)
        staged.put(at, output, pair_output(p, pair, tile.group, first + output, gate, up));
    });
    __syncthreads();
    staged.store(p, tile, first);
  } else {
    for_each_output<S>(p, tile, sums, [&](int, int pair, int output, float gate, float up) {
      if (first + output < p.outputs) store_pair(p, pair, tile.group, first + output, gate, up);
    });
  }
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    multiply_tiles(const __grid_constant__ GroupedParams p, int64_t stride) {
  extern __shared__ uint8_t raw[];
  uint8_t* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
  wait_and_let_next_kernel_start();
  const PairTile tile = find_tile(p.offsets, p.groups, S::kPairs, static_cast<int>(blockIdx.y));
  if (tile.count == 0) return;
  const T* matrix = reinterpret_cast<const T*>(p.matrix(tile.group));
  const T* x = reinterpret_cast<const T*>(p.x);
  const TileCopies<T, S::kRows, S::kThreads> weights([&](int row) { return matrix + matrix_row<S>(p, row) * stride; },
                                                     p.k);
  const TileCopies<T, S::kPairs, S::kThreads> pairs(
      [&](int i) { return i < tile.count ? x + p.x_row(p.order[tile.first + i]) * p.x_stride : nullptr; }, p.k);
  const int steps = (p.k + kTileColumns - 1) / kTileColumns;
  const auto request = [&](int step) {
    uint8_t* stage = stages + step % S::kStages * S::kStageBytes;
    if (step < steps) {
      weights.start(stage, step, matrix);
      pairs.start(stage + S::kRows * kTileRowBytes, step, matrix);
    }
    commit_copies();  // one group for each step, even an empty one
  };
  float sums[S::kSums];
#pragma unroll
  for (float& sum : sums) sum = 0;
#pragma unroll
  for (int step = 0; step < S::kStages - 1; ++step) request(step);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_copies<S::kStages - 2>();
    __syncthreads();  // the stage is complete, and all warps have left the one that is requested next
    request(step + S::kStages - 1);
    multiply_stage<T, S>(stages + step % S::kStages * S::kStageBytes, tile.count, sums);
  }
  store_tile<S>(p, tile, sums, stages);
}

template <class S>
class PlainTiles final : public Kernel<GroupedLinearOp> {
 public:
  explicit PlainTiles(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && is_plain_grouped(p) && p.k % 8 == 0 &&
           most_tiles(p.pairs(), p.groups, S::kPairs) <= 65535;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    constexpr double kPartOfPeak = S::kLarge ? 0.4 : 0.3;
    return tiles_us(p, hardware, {S::kPairs, kPartOfPeak, S::kPartOfBandwidth}, 2.0 * double(p.k), kProductBytes);
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override {
    return p.sum ? static_cast<size_t>(p.pairs() * p.n) * kProductBytes : 0;
  }
  void run(const Args& a, const Executor& executor) const override {
    check_cuda(a.weights->format == DType::BF16 ? start<__nv_bfloat16>(a, executor) : start<__half>(a, executor),
               "starting a grouped linear layer");
  }

 private:
  // The products of a prompt's pairs are rounded to bf16: writing and reading them would take a tenth of the time.
  static constexpr size_t kProductBytes = S::kLarge ? 2 : 4;

  template <class T>
  static cudaError_t start(const Args& a, const Executor& executor) {
    GroupedParams params = grouped_params(a);
    if (params.pairs == 0) return cudaSuccess;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Matrix products{S::kLarge ? DType::BF16 : DType::F32, params.pairs, params.n, params.n, executor.workspace};
    if (a.sum) params.y = products;
    LaunchShape shape;
    shape.threads = S::kThreads;
    shape.shared_bytes = S::kSharedBytes;
    shape.grid = dim3(static_cast<unsigned>(ceil_div(params.n, S::kRows)),
                      static_cast<unsigned>(most_tiles(params.pairs, params.groups, S::kPairs)));
    if (a.gated) shape.grid.x = static_cast<unsigned>(ceil_div(params.half, S::kRows / 2));
    const cudaError_t status = launch_kernel(multiply_tiles<T, S>, shape, step, params, packed_linear_stride(params.k));
    return status == cudaSuccess && a.sum ? add_pairs(products, a.routing, a.y, step) : status;
  }

  std::string_view name_;
};

}  // namespace

std::span<const Kernel<GroupedLinearOp>* const> cuda_grouped_tiles() {
  static const PlainTiles<Flat16> flat16("cuda_tiles_16");
  static const PlainTiles<Flat64> flat64("cuda_tiles_64");
  static const PlainTiles<Large> large("cuda_tiles_128");
  static const Kernel<GroupedLinearOp>* const all[] = {&flat16, &flat64, &large};
  return all;
}

}  // namespace millrace
