// Flat and full GEMM on Hopper: warpgroup products with the operands swapped, so that the weights fill the 64 rows that
// the instruction wants and the tokens its other side, which goes in steps of eight. A loader warp keeps a pipeline of
// bulk tensor copies full; the blocks of a cluster share K.
//
// The depth of the pipeline is how much of the weights is under way per multiprocessor. Two stages are the classic
// double buffering; memory this fast wants all of shared memory.
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/tensor_map.h"
#include "kernels/linear/cuda/wgmma.cuh"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kDepth = 64;  // elements of K per stage: one row of the 128-byte swizzle
constexpr int kMaxTokens = 256;
constexpr int kMaxStages = 16;
constexpr int kRowBytes = kDepth * 2;  // of a stage

struct WgmmaParams {
  int iterations, iterations_split;  // stages along K in all, and per block of a cluster
  int rows;                          // of a block: chosen so that the blocks divide evenly among the multiprocessors
  int stages, splits, token_blocks;
  LinearOutput out;
};

// A block has 64 rows for each of a warpgroup's kHeight products at most; the products of those that it does not have
// are left aside. Up to 64 tokens two blocks fit on a multiprocessor, one of each of two kernels.
template <int kTokens, int kGroups, int kHeight>
struct Tile {
  static constexpr int kThreads = 128 * kGroups + 32;
  static constexpr int kBlocks = kTokens > 64 ? 1 : 2;
};

struct Pipeline {
  uint8_t* stages;
  uint64_t *full, *empty;
  int weight_bytes, stage_bytes;
};

// The loader's part. Weights do not depend on the kernel before this one: the first stages are asked for before it
// ends.
__device__ __forceinline__ void load_stages(const Pipeline& pipe, const CUtensorMap& weights, const CUtensorMap& x,
                                            const WgmmaParams& p, int begin, int end, int row, int token) {
  const int ahead = min(end - begin, p.stages);
  // One block of tokens: each weight is read once, and need not displace what others read again.
  const uint64_t policy = p.token_blocks == 1 ? evict_first_policy() : evict_normal_policy();
  for (int i = 0; i < ahead; ++i) {
    arrive_expecting(pipe.full + i, pipe.stage_bytes);
    copy_box(pipe.stages + i * pipe.stage_bytes, weights, (begin + i) * kDepth, row, pipe.full + i, policy);
  }
  wait_for_previous_kernel();
  for (int i = 0; i < ahead; ++i) {
    copy_box(pipe.stages + i * pipe.stage_bytes + pipe.weight_bytes, x, (begin + i) * kDepth, token, pipe.full + i);
  }
  int stage = 0;
  uint32_t parity = 0;
  for (int i = begin + ahead; i < end; ++i) {
    uint8_t* to = pipe.stages + stage * pipe.stage_bytes;
    wait_barrier(pipe.empty + stage, parity);
    arrive_expecting(pipe.full + stage, pipe.stage_bytes);
    copy_box(to, weights, i * kDepth, row, pipe.full + stage, policy);
    copy_box(to + pipe.weight_bytes, x, i * kDepth, token, pipe.full + stage);
    if (++stage == p.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

template <class T, int kTokens, int kHeight>
__device__ __forceinline__ void multiply_stages(const Pipeline& pipe, int stages, int count,
                                                float (&sums)[kHeight][kTokens / 2]) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  int stage = 0, previous = 0;
  uint32_t parity = 0;
  for (int i = 0; i < count; ++i) {
    const uint8_t* at = pipe.stages + stage * pipe.stage_bytes;
    wait_barrier(pipe.full + stage, parity);
    const uint64_t a = matrix_descriptor(at + group * kHeight * 64 * kRowBytes);
    const uint64_t b = matrix_descriptor(at + pipe.weight_bytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {  // descriptors count 16 bytes: 16 elements are 2
#pragma unroll
      for (int high = 0; high < kHeight; ++high) {
        WarpgroupProduct<T, kTokens>::run(sums[high], a + high * (64 * kRowBytes / 16) + 2 * step, b + 2 * step,
                                          i > 0 || step > 0);
      }
    }
    commit_products();
    wait_products<1>();
    if (i > 0 && lane == 0) arrive(pipe.empty + previous);
    previous = stage;
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  wait_products<0>();
}

// A warp's sums where finish_tiles finds them: 16 rows of each of its warpgroup's products.
template <int kTokens, int kHeight>
__device__ __forceinline__ void put_sums(float* partials, int rows, const float (&sums)[kHeight][kTokens / 2]) {
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int high = 0; high < kHeight; ++high) {
    const int tile = (warp / 4 * kHeight + high) * 4 + warp % 4;
    if (tile * kTileRows >= rows) break;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      const float fragment[4] = {sums[high][4 * j], sums[high][4 * j + 1], sums[high][4 * j + 2],
                                 sums[high][4 * j + 3]};
      put_fragment(partials + tile * kTokens * kTileStride, 8 * j, fragment);
    }
  }
}

template <class T, int kTokens, int kGroups, int kHeight>
__global__ void __launch_bounds__(Tile<kTokens, kGroups, kHeight>::kThreads, Tile<kTokens, kGroups, kHeight>::kBlocks)
    flat_wgmma(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ WgmmaParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  using Shape = Tile<kTokens, kGroups, kHeight>;
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * kMaxStages];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const Pipeline pipe{aligned, barriers, barriers + kMaxStages, p.rows * kRowBytes, (p.rows + kTokens) * kRowBytes};
  const int warp = threadIdx.x / 32;
  const int block = static_cast<int>(blockIdx.x) / p.splits, split = static_cast<int>(blockIdx.x) % p.splits;
  const int row = block / p.token_blocks * p.rows, token = block % p.token_blocks * kTokens;
  const int begin = min(p.iterations, split * p.iterations_split);
  const int end = min(p.iterations, begin + p.iterations_split);
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      init_barrier(pipe.full + i, 1);
      init_barrier(pipe.empty + i, 4 * kGroups);
    }
    publish_barriers();
  }
  __syncthreads();

  float* partials = reinterpret_cast<float*>(aligned);
  if (warp == 4 * kGroups) {
    if (threadIdx.x % 32 == 0) load_stages(pipe, weights, x, p, begin, end, row, token);
    wait_for_previous_kernel();
    __syncthreads();
  } else {
    float sums[kHeight][kTokens / 2] = {};
    multiply_stages<T, kTokens, kHeight>(pipe, p.stages, end - begin, sums);
    wait_for_previous_kernel();
    __syncthreads();  // all products are done: partial sums take the place of the stages
    put_sums<kTokens, kHeight>(partials, p.rows, sums);
  }
  finish_tiles(partials, 1, p.rows / kTileRows, kTokens, row, token, p.splits, Shape::kThreads, p.out);
#endif
}

// How a variant uses a multiprocessor. Half of its shared memory is for the block of the next kernel, which then fills
// its pipeline while this one drains; many tokens need all of it.
constexpr int kHalfKilobytes = 110;
struct Variant {
  int stages;  // at most
  int groups;  // warpgroups of a block, up to 64 tokens
  int height;  // products of a warpgroup, up to 64 tokens
  int kilobytes = kHalfKilobytes;
};

constexpr Variant kWide{kMaxStages, 2, 1};
constexpr Variant kNarrow{kMaxStages, 1, 1};
constexpr Variant kTall{kMaxStages, 2, 2};       // x is read for twice as many rows
constexpr Variant kDeep{kMaxStages, 2, 1, 208};  // a multiprocessor for itself
constexpr Variant kDouble{2, 2, 1};

int tokens_of(int64_t m) {
  int tokens = 8;
  while (tokens < m && tokens < kMaxTokens) tokens *= 2;
  return tokens;
}

int most_rows(const Variant& v, int tokens) { return tokens > 64 ? 128 : 64 * v.groups * v.height; }

// Rows of a block, and blocks along K.
struct Cut {
  int rows, splits;
  double us;
};

// Products of rows that a block does not have read on behind its last stage.
int bytes_beyond(const Variant& v, int tokens, int rows) { return (most_rows(v, tokens) - rows) * kRowBytes; }

int stages_of(const Variant& v, int tokens, int rows) {
  const int stage = (rows + tokens) * kRowBytes, kilobytes = tokens > 64 ? 208 : v.kilobytes;
  return std::clamp((kilobytes * 1024 - bytes_beyond(v, tokens, rows)) / stage, 2, v.stages);
}

// The multiprocessor with the most rows decides, though it can draw somewhat more than its share of the bandwidth.
// Every block of rows reads x through the second-level cache; a cluster adds up its parts token by token.
double cost_us(const CudaLinearProblem& p, const CudaLimits& limits, const Variant& v, int rows, int splits) {
  const int tokens = tokens_of(p.m);
  const int64_t row_blocks = ceil_div(p.n, rows), token_blocks = ceil_div(p.m, tokens);
  const int64_t blocks = row_blocks * token_blocks * splits;
  const double m = static_cast<double>(p.m), k = static_cast<double>(p.k);
  const double streamed = stream_us(p, limits, blocks, 2, 4.2);
  const double each = static_cast<double>(rows) * k * 2 / splits, share = limits.bytes_per_us / limits.sms;
  const double busiest = 4.2 + static_cast<double>(ceil_div(blocks, limits.sms)) * each / (1.1 * share);
  const double in_flight = static_cast<double>(stages_of(v, tokens, rows)) * rows * kRowBytes;
  const double slow = std::max(1.0, 55e3 / in_flight);  // latency: some 55 KB must be under way
  const double x_us = 0.2 * 2 * k * m * static_cast<double>(row_blocks) / limits.bytes_per_us;
  const double join_us = splits > 1 ? 0.2 + 0.016 * (splits - 1) * m : 0;
  const double flops = 2 * static_cast<double>(row_blocks * rows) * k * static_cast<double>(token_blocks * tokens);
  const double alone_us = v.kilobytes > kHalfKilobytes ? 0.5 : 0;  // it cannot start beside another kernel
  return std::max(std::max(streamed, busiest) * slow + x_us + join_us + alone_us,
                  8 + flops / (0.65 * limits.flops_per_us));
}

Cut choose_cut(const CudaLinearProblem& p, const CudaLimits& limits, const Variant& v) {
  const int most = most_rows(v, tokens_of(p.m)), least = p.m > 64 ? most : most / 2 + kTileRows;
  Cut best{most, 1, cost_us(p, limits, v, most, 1)};
  for (int rows = most; rows >= least; rows -= kTileRows) {
    const int64_t blocks = ceil_div(p.n, rows) * ceil_div(p.m, tokens_of(p.m));
    for (int splits = 1; splits <= 8; splits *= 2) {
      if (splits > 1 && (blocks * splits / 2 >= limits.sms || ceil_div(p.k, kDepth) / splits < 4)) break;
      const double us = cost_us(p, limits, v, rows, splits);
      if (us < best.us) best = {rows, splits, us};
    }
  }
  return best;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && has_clusters(limits) && !has_rows_for_all(p, limits);
}

template <class T, int kTokens, int kGroups, int kHeight>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step,
                   const Variant& v) {
  const Cut cut = choose_cut(p, limits, v);
  CUtensorMap weights, x;
  if (!describe(weights, p.format, a.weights, p.n, p.k, packed_linear_stride(p.k), {kDepth, cut.rows, true}) ||
      !describe(x, p.x, a.x, p.m, p.k, a.x_stride, {kDepth, kTokens, true})) {
    return cudaErrorInvalidValue;
  }
  WgmmaParams params{};
  params.rows = cut.rows;
  params.splits = cut.splits;
  params.iterations = static_cast<int>(ceil_div(p.k, kDepth));
  params.iterations_split = static_cast<int>(ceil_div(params.iterations, params.splits));
  params.stages = stages_of(v, kTokens, cut.rows);
  params.token_blocks = static_cast<int>(ceil_div(p.m, kTokens));
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, cut.rows) * params.token_blocks * params.splits));
  shape.threads = Tile<kTokens, kGroups, kHeight>::kThreads;
  shape.cluster = params.splits;
  const int beyond = bytes_beyond(v, kTokens, cut.rows);
  const int stage_bytes = (cut.rows + kTokens) * kRowBytes, partials = cut.rows * kTokens / kTileRows * kTileStride * 4;
  shape.shared_bytes = 1024 + static_cast<size_t>(std::max(params.stages * stage_bytes + beyond, partials));
  return launch_kernel(flat_wgmma<T, kTokens, kGroups, kHeight>, shape, step, weights, x, params);
}

template <class T, int kTokens>
cudaError_t launch_shape(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                         const CudaStep& step, const Variant& v) {
  if (v.groups == 1) return launch<T, kTokens, 1, 1>(p, a, limits, step, v);
  if (v.height == 2) return launch<T, kTokens, 2, 2>(p, a, limits, step, v);
  return launch<T, kTokens, 2, 1>(p, a, limits, step, v);
}

template <class T>
cudaError_t launch_tokens(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                          const CudaStep& step, const Variant& v) {
  switch (tokens_of(p.m)) {
    case 8:
      return launch_shape<T, 8>(p, a, limits, step, v);
    case 16:
      return launch_shape<T, 16>(p, a, limits, step, v);
    case 32:
      return launch_shape<T, 32>(p, a, limits, step, v);
    case 64:
      return launch_shape<T, 64>(p, a, limits, step, v);
    case 128:
      return launch<T, 128, 2, 1>(p, a, limits, step, v);
    default:
      return launch<T, 256, 2, 1>(p, a, limits, step, v);
  }
}

template <const Variant& kVariant>
bool can_run_variant(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && (&kVariant == &kWide || p.m <= 64);
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

}  // namespace

std::span<const CudaLinearKernel> wgmma_kernels() {
  static constexpr CudaLinearKernel kKernels[] = {
      {"wgmma", "flat", can_run_variant<kWide>, estimate_variant<kWide>, run_variant<kWide>},
      {"wgmma-narrow", "flat", can_run_variant<kNarrow>, estimate_variant<kNarrow>, run_variant<kNarrow>},
      {"wgmma-tall", "flat", can_run_variant<kTall>, estimate_variant<kTall>, run_variant<kTall>},
      {"wgmma-deep", "flat", can_run_variant<kDeep>, estimate_variant<kDeep>, run_variant<kDeep>},
      {"wgmma-double", "flat", can_run_variant<kDouble>, estimate_variant<kDouble>, run_variant<kDouble>},
  };
  return kKernels;
}

}  // namespace millrace
