// Flat and full GEMM on Hopper: warpgroup products with swapped operands. The weights are the 64-row operand, the
// tokens the other one, whose size is a multiple of eight. A loader warp keeps a pipeline of tensor copies full; the
// blocks of a cluster share K.
//
// The depth of the pipeline determines how many bytes each multiprocessor has in flight. Two stages are the classic
// double buffering; HBM3 bandwidth needs all of the shared memory.
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/plain/flat_pipeline.cuh"
#include "kernels/linear/cuda/plain/lean_finish.cuh"
#include "kernels/linear/cuda/tensor_map.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kMostLean = 128, kMostSharing = 64;  // tokens

constexpr Variant kWide{kMaxStages, 80, 128};
constexpr Variant kNarrow{kMaxStages, 48, 64};
constexpr Variant kDeep{kMaxStages, 64, 128, kAllKilobytes, 4};  // one block per multiprocessor
constexpr Variant kDouble{2, 80, 128};

// Stores a warp's partial sums where the epilogue expects them.
template <int kTokens>
__device__ __forceinline__ void put_sums(float* partials, int rows, const float (&sums)[kTokens / 2]) {
  const int warp = threadIdx.x / 32;
  if (warp * kTileRows >= rows) return;
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
    const float fragment[4] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
    put_fragment(partials + warp * kTokens * kTileStride, 8 * j, fragment);
  }
}

template <class T, int kTokens, int kGroups, NormHalf kHalf>
__global__ void __launch_bounds__(Tile<kGroups, kHalf>::kThreads, Tile<kGroups, kHalf>::kBlocks)
    flat_wgmma(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ WgmmaParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  using Shape = Tile<kGroups, kHalf>;
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * kMaxStages];
  __shared__ float scales[kHalf == NormHalf::Behind ? kMostSharing : 1];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int stage_bytes = (p.rows + kTokens) * kRowBytes;
  const Pipeline pipe{aligned, barriers, barriers + kMaxStages, p.rows * kRowBytes, stage_bytes, stage_bytes};
  const int warp = threadIdx.x / 32;
  // This code delays the first copy, and divisions are slow. Splits are a power of two.
  const int block = static_cast<int>(blockIdx.x) >> (31 - __clz(p.splits));
  const int split = static_cast<int>(blockIdx.x) & (p.splits - 1);
  const int row_block = p.token_blocks == 1 ? block : block / p.token_blocks;
  const int row = row_block * p.rows, token = (block - row_block * p.token_blocks) * kTokens;
  const int begin = min(p.iterations, split * p.iterations_split);
  const int end = min(p.iterations, begin + p.iterations_split);
  const Range range{begin, end, row, token};
  start_block<Shape>(pipe, weights, p, range);
  if (threadIdx.x == 0) {
    init_all(pipe.empty, 4 * kGroups);
    publish_barriers();
  }
  __syncthreads();

  float* partials = reinterpret_cast<float*>(aligned);
  SharedFinish<T, kHalf, Shape::kMultiplying> shared(p.out, p.norm, p.rows, row, p.splits);
  if (warp == 4 * kGroups) {
    if (threadIdx.x % 32 == 0) {
      ask_first_x(pipe, x, p, range);
      load_stages(pipe, weights, x, p, range);
    }
    wait_for_previous_kernel();
    __syncthreads();
  } else if (kHalf == NormHalf::Behind && warp > 4 * kGroups) {
    wait_for_previous_kernel();
    find_scales(p.norm, p.out.m, scales, warp - 4 * kGroups - 1, Shape::kScaling);
    __syncthreads();
  } else {
    float sums[kTokens / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    shared.prepare();
    multiply_stages<T, kTokens, kGroups>(pipe, p, end - begin, sums);
    p.stamps.mark_first(kMultiplied);
    wait_for_previous_kernel();
    __syncthreads();  // partial sums overwrite the stages
    put_sums<kTokens>(partials, p.rows, sums);
  }
  if constexpr (kHalf == NormHalf::None) {
    finish_tiles(partials, 1, p.rows / kTileRows, kTokens, row, token, p.splits, Shape::kThreads, p.out);
  } else if (warp < 4 * kGroups) {
    shared.run(partials, kTokens, scales);
  } else {
    attend_finish(p.splits);
  }
  p.stamps.mark_first(kStored);
#endif
}

// The same with LeanFinish as epilogue.
template <class T, int kTokens, int kGroups, NormHalf kHalf>
__global__ void __launch_bounds__(Tile<kGroups, kHalf>::kThreads, Tile<kGroups, kHalf>::kBlocks)
    lean_wgmma(const __grid_constant__ CUtensorMap tall, const __grid_constant__ CUtensorMap lower,
               const __grid_constant__ CUtensorMap x, const __grid_constant__ WgmmaParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shape = Tile<kGroups, kHalf>;
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * kMaxStages], pushed, scaled;
  __shared__ float scales[kHalf == NormHalf::Behind ? kMostSharing : 1];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int warp = threadIdx.x / 32, pair = p.splits - 1;  // one block or two
  const int block = static_cast<int>(blockIdx.x) >> pair, split = static_cast<int>(blockIdx.x) & pair;
  const int before = min(block, p.tall), rows = block < p.tall ? p.rows : p.rows - kTileRows;
  const int row = before * p.rows + (block - before) * (p.rows - kTileRows);
  const CUtensorMap& weights = block < p.tall ? tall : lower;
  const Pipeline pipe{aligned,
                      barriers,
                      barriers + kMaxStages,
                      p.rows * kRowBytes,
                      (p.rows + kTokens) * kRowBytes,
                      (rows + kTokens) * kRowBytes};
  const int begin = split * p.iterations_split, end = min(p.iterations, begin + p.iterations_split);
  const Range range{begin, end, row, 0};
  start_block<Shape>(pipe, weights, p, range);
  if (threadIdx.x == 0) {
    init_all(pipe.empty, 4 * kGroups);
    init_barrier(&pushed, 1);
    if constexpr (kHalf == NormHalf::Behind) init_barrier(&scaled, 32 * Shape::kScaling);
    if (pair) arrive_expecting(&pushed, static_cast<uint32_t>(LeanFinish<T, kHalf, kTokens>::bytes_sent(rows)));
    publish_barriers();
  }
  __syncwarp();
  if (pair) cluster_arrive();
  __syncthreads();

  using Finish = LeanFinish<T, kHalf, kTokens>;
  if (warp == 4 * kGroups) {
    if (threadIdx.x % 32 == 0) ask_first_x(pipe, x, p, range);
    __syncwarp();
    // Must precede the wait for products: under racecheck no thread passes this barrier until all threads reach it.
    if (pair) cluster_wait();
    if (threadIdx.x % 32 == 0) load_stages(pipe, weights, x, p, range);
  } else if (kHalf == NormHalf::Behind && warp > 4 * kGroups) {
    wait_for_previous_kernel();
    find_scales(p.norm, p.out.m, scales, warp - 4 * kGroups - 1, Shape::kScaling);
    arrive(&scaled);
    if (pair) cluster_wait();
  } else {
    float* received = reinterpret_cast<float*>(aligned + p.received);
    Finish finish(p.out, p.norm, rows, row, p.splits);
    float sums[kTokens / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    finish.prepare();
    if (pair) cluster_wait();  // the other block has started
    multiply_stages<T, kTokens, kGroups>(pipe, p, end - begin, sums);
    p.stamps.mark_first(kMultiplied);
    if (pair) {
      finish.send(received, &pushed, sums);
      wait_barrier_cluster(&pushed, 0);
      p.stamps.mark_first(kMet);
    }
    if (kHalf == NormHalf::Behind) wait_barrier(&scaled, 0);
    finish.run(sums, received, scales);
    p.stamps.mark_first(kStored);
  }
#endif
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && has_clusters(limits) && !has_rows_for_all(p, limits);
}

template <class T, int kTokens, int kGroups, NormHalf kHalf>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, Cut cut, int stages, const CudaStep& step) {
  const LinearOutput out = linear_output(p, a);
  const bool lean = kTokens <= kMostLean && cut.splits <= 2 && p.m <= kTokens && is_lean(p, out);
  if (!lean) cut.lower = 0;
  CUtensorMap weights, lower, x;
  const auto describe_weights = [&](CUtensorMap& map, int rows) {
    return describe(map, p.format, a.weights, p.n, p.k, packed_linear_stride(p.k), {kDepth, rows, true});
  };
  if (!describe_weights(weights, cut.rows) || !describe_weights(lower, cut.rows - (cut.lower > 0 ? kTileRows : 0)) ||
      !describe(x, p.x, a.x, p.m, p.k, a.x_stride, {kDepth, kTokens, true})) {
    return cudaErrorInvalidValue;
  }
  WgmmaParams params{};
  params.rows = cut.rows;
  params.splits = cut.splits;
  params.iterations = static_cast<int>(ceil_div(p.k, kDepth));
  params.iterations_split = static_cast<int>(ceil_div(params.iterations, params.splits));
  params.stages = stages;
  params.token_blocks = static_cast<int>(ceil_div(p.m, kTokens));
  params.out = out;
  params.norm = {a.ahead, a.squares, a.epsilon, static_cast<int>(p.k)};
  LaunchShape shape;
  shape.most_shared = true;
  const int64_t row_blocks = ceil_div(p.n + cut.lower * kTileRows, cut.rows);
  params.tall = static_cast<int>(row_blocks) - cut.lower;
  shape.grid = dim3(static_cast<unsigned>(row_blocks * params.token_blocks * params.splits));
  shape.threads = Tile<kGroups, kHalf>::kThreads;
  shape.cluster = params.splits;
  const int staged = stages * (cut.rows + kTokens) * kRowBytes + bytes_beyond(kTokens, cut.rows);
  // If blocks fill whole multiprocessors, early blocks of the next kernel would only find the few idle ones, and start
  // far too soon.
  params.late = cut.alone;
  params.stamps = stamps_of_launch(shape.grid.x);
  if constexpr (kTokens <= kMostLean) {
    if (lean) {
      params.received = staged;
      shape.shared_bytes = 1024 + static_cast<size_t>(staged + bytes_received(kTokens, cut.rows, cut.splits));
      return launch_kernel(lean_wgmma<T, kTokens, kGroups, kHalf>, shape, step, weights, lower, x, params);
    }
  }
  const int partials = cut.rows * kTokens / kTileRows * kTileStride * 4;
  shape.shared_bytes = 1024 + static_cast<size_t>(std::max(staged, partials));
  return launch_kernel(flat_wgmma<T, kTokens, kGroups, kHalf>, shape, step, weights, x, params);
}

// bf16 only: values not yet divided by their root mean square may exceed the range of f16.
bool shares_norm(const CudaLinearProblem& p) {
  return p.format == DType::BF16 && p.m <= kMostSharing && p.n % kTileRows == 0 && p.k % (4 * kNormPart) == 0;
}

bool can_store_ahead(const CudaLinearProblem& p, const CudaLinearArgs& a) {
  return p.y == DType::F32 && p.accumulate && !p.gate_up && a.squares == nullptr && linear_output(p, a).aligned &&
         a.ahead.stride % 4 == 0;
}

template <class T, int kTokens, int kGroups>
cudaError_t launch_half(const CudaLinearProblem& p, const CudaLinearArgs& a, const Cut& cut, int stages,
                        const CudaStep& step) {
  if (a.ahead.weights == nullptr && a.squares == nullptr) {
    return launch<T, kTokens, kGroups, NormHalf::None>(p, a, cut, stages, step);
  }
  if (!shares_norm(p)) return cudaErrorInvalidValue;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && kTokens <= kMostSharing) {
    if (a.ahead.weights == nullptr) return launch<T, kTokens, kGroups, NormHalf::Behind>(p, a, cut, stages, step);
    if (can_store_ahead(p, a)) return launch<T, kTokens, kGroups, NormHalf::Ahead>(p, a, cut, stages, step);
  }
  return cudaErrorInvalidValue;
}

template <class T, int kTokens>
cudaError_t launch_groups(const CudaLinearProblem& p, const CudaLinearArgs& a, const Cut& cut, int stages,
                          const CudaStep& step) {
  if constexpr (kTokens <= 64) {
    if (groups_of(kTokens, cut.rows) == 1) return launch_half<T, kTokens, 1>(p, a, cut, stages, step);
  }
  return launch_half<T, kTokens, 2>(p, a, cut, stages, step);
}

template <class T>
cudaError_t launch_tokens(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                          const CudaStep& step, const Variant& v) {
  const Cut cut = choose_cut(p, limits, v);
  const int tokens = tokens_of(p.m), stages = stages_of(v, tokens, cut.rows, cut.splits);
  switch (tokens) {
    case 8:
      return launch_groups<T, 8>(p, a, cut, stages, step);
    case 16:
      return launch_groups<T, 16>(p, a, cut, stages, step);
    case 32:
      return launch_groups<T, 32>(p, a, cut, stages, step);
    case 64:
      return launch_groups<T, 64>(p, a, cut, stages, step);
    case 128:
      return launch_groups<T, 128>(p, a, cut, stages, step);
    default:
      return launch_groups<T, 256>(p, a, cut, stages, step);
  }
}

template <const Variant& kVariant>
bool can_run_variant(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && (&kVariant == &kWide || p.m <= 64);
}

template <const Variant& kVariant>
bool splits_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run_variant<kVariant>(p, limits) && shares_norm(p);
}

template <const Variant& kVariant>
double estimate_variant(const CudaLinearProblem& p, const CudaLimits& limits) {
  return choose_cut(p, limits, kVariant).us;
}

template <const Variant& kVariant>
cudaError_t run_variant(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                        const CudaStep& step) {
  return p.format == DType::BF16 ? launch_tokens<__nv_bfloat16>(p, a, limits, step, kVariant)
                                 : launch_tokens<__half>(p, a, limits, step, kVariant);
}

template <const Variant& kVariant>
constexpr CudaLinearKernel kernel(std::string_view name) {
  return {name,    can_run_variant<kVariant>, estimate_variant<kVariant>, run_variant<kVariant>,
          nullptr, splits_norm<kVariant>};
}

}  // namespace

std::span<const CudaLinearKernel> wgmma_kernels() {
  static constexpr CudaLinearKernel kKernels[] = {
      kernel<kWide>("wgmma"),
      kernel<kNarrow>("wgmma-narrow"),
      kernel<kDeep>("wgmma-deep"),
      kernel<kDouble>("wgmma-double"),
  };
  return kKernels;
}

}  // namespace millrace
