// Flat and full GEMM on Hopper: warpgroup products with the operands swapped, so that the weights fill the 64 rows that
// the instruction wants and the tokens its other side, which goes in steps of eight. A loader warp keeps a pipeline of
// bulk tensor copies full; the blocks of a cluster share K.
//
// The depth of the pipeline is how much of the weights is under way per multiprocessor. Two stages are the classic
// double buffering; memory this fast wants all of shared memory.
#include "kernels/cuda/stamps.cuh"
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/shared_norm.cuh"
#include "kernels/linear/cuda/tensor_map.h"
#include "kernels/linear/cuda/wgmma.cuh"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kDepth = 64;                          // elements of K per stage: one row of the 128-byte swizzle
constexpr int kMaxTokens = 256, kMostSharing = 64;  // the latter: where a norm is shared
constexpr int kMaxStages = 16;
constexpr int kRowBytes = kDepth * 2;  // of a stage

struct WgmmaParams {
  int iterations, iterations_split;  // stages along K in all, and per block of a cluster
  int rows;                          // of a block: chosen so that the blocks divide evenly among the multiprocessors
  int stages, splits, token_blocks;
  int received;  // bytes up to where the other block of a pair puts its sums; 0: they are fetched from there
  bool late;     // lets the next kernel in with its last copy, not at its start
  LinearOutput out;
  SharedNorm norm;
  Stamps stamps;
};

// A block has 64 rows for each warpgroup at most; the products of those that it does not have are left aside. Behind
// the warpgroups comes the loader's warp, and those that find out what a shared norm divides by.
template <int kGroups, NormHalf kHalf>
struct Tile {
  static constexpr int kMultiplying = 128 * kGroups, kScaling = kHalf == NormHalf::Behind ? 4 : 0;  // threads, warps
  static constexpr int kThreads = kMultiplying + 32 * (1 + kScaling);
  // Two must fit on a multiprocessor, this kernel's or one of the next.
  static constexpr int kBlocks = kHalf == NormHalf::Behind ? 2 : 1;
};

struct Pipeline {
  uint8_t* stages;
  uint64_t *full, *empty;
  int weight_bytes, stage_bytes;
};

// Code that runs once costs by its length: no loop that the compiler would unroll for a number it does not know.
__device__ __forceinline__ void init_all(uint64_t* barriers, int arrivals) {
#pragma unroll
  for (int i = 0; i < kMaxStages; ++i) init_barrier(barriers + i, arrivals);
}

// A block's part of the weights, stage by stage.
struct Range {
  int begin, end, row, token;
  __device__ __forceinline__ int ahead(int stages) const { return min(end - begin, stages); }
};

// One block of tokens: each weight is read once, and need not displace what others read again.
__device__ __forceinline__ uint64_t weight_policy(const WgmmaParams& p) {
  return p.token_blocks == 1 ? evict_first_policy() : evict_normal_policy();
}

// Weights do not depend on the kernel before this one: the first stages are asked for before it ends, and before this
// block's other warps have started.
__device__ __forceinline__ void ask_first_weights(const Pipeline& pipe, const CUtensorMap& weights,
                                                  const WgmmaParams& p, const Range& r) {
  const uint64_t policy = weight_policy(p);
#pragma unroll 1
  for (int i = 0; i < r.ahead(p.stages); ++i) {
    arrive_expecting(pipe.full + i, pipe.stage_bytes);
    copy_box(pipe.stages + i * pipe.stage_bytes, weights, (r.begin + i) * kDepth, r.row, pipe.full + i, policy);
  }
  p.stamps.mark(kAsked);
}

// The rest of the loader's part.
__device__ __forceinline__ void load_stages(const Pipeline& pipe, const CUtensorMap& weights, const CUtensorMap& x,
                                            const WgmmaParams& p, const Range& r) {
  const int begin = r.begin, end = r.end, row = r.row, token = r.token, ahead = r.ahead(p.stages);
  const uint64_t policy = weight_policy(p);
  wait_for_previous_kernel();
  p.stamps.mark(kWaited);
#pragma unroll 1
  for (int i = 0; i < ahead; ++i) {
    copy_box(pipe.stages + i * pipe.stage_bytes + pipe.weight_bytes, x, (begin + i) * kDepth, token, pipe.full + i);
  }
  int stage = 0;
  uint32_t parity = 0;
#pragma unroll 1
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
  if (p.late) let_next_kernel_start();
}

template <class T, int kTokens, int kGroups>
__device__ __forceinline__ void multiply_stages(const Pipeline& pipe, const WgmmaParams& p, int count,
                                                float (&sums)[kTokens / 2]) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  int stage = 0, previous = 0;
  uint32_t parity = 0;
  for (int i = 0; i < count; ++i) {
    const uint8_t* at = pipe.stages + stage * pipe.stage_bytes;
    wait_barrier(pipe.full + stage, parity);
    p.stamps.mark_first(kLanded + i);
    const uint64_t a = matrix_descriptor(at + group * 64 * kRowBytes);
    const uint64_t b = matrix_descriptor(at + pipe.weight_bytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {  // descriptors count 16 bytes: 16 elements are 2
      WarpgroupProduct<T, kTokens>::run(sums, a + 2 * step, b + 2 * step, i > 0 || step > 0);
    }
    commit_products();
    wait_products<1>();
    if (i > 0 && lane == 0) arrive(pipe.empty + previous);
    previous = stage;
    if (++stage == p.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  wait_products<0>();
}

// Partial sums of a warp where the end of the kernel finds them.
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

// The same where two blocks share K: each sends the sums of the tiles that the other one finishes there at once, and a
// barrier there counts them: nobody reads from afar, and nobody waits for more than what was sent to it.
template <int kTokens>
__device__ __forceinline__ void push_sums(float* own, float* received, uint64_t* arrived, int rows,
                                          const float (&sums)[kTokens / 2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, finisher = warp % 2;
  if (warp * kTileRows >= rows) return;
  const bool is_own = finisher == cluster_rank();
  float* tile = (is_own ? own : received) + warp / 2 * kTokens * kTileStride;
  const uint32_t to = cluster_address(tile, finisher), barrier = cluster_address(arrived, finisher);
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) {  // as put_fragment() does
    const int row = lane / 4 + i % 4 / 2 * 8, token = i / 4 * 8 + lane % 4 * 2 + i % 2;
    const int at = token * kTileStride + row;
    if (is_own) {
      tile[at] = sums[i];
    } else {
      send_cluster(to + at * 4, sums[i], barrier);
    }
  }
}

template <class T, int kTokens, int kGroups, NormHalf kHalf>
__global__ void __launch_bounds__(Tile<kGroups, kHalf>::kThreads, Tile<kGroups, kHalf>::kBlocks)
    flat_wgmma(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
               const __grid_constant__ WgmmaParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  using Shape = Tile<kGroups, kHalf>;
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * kMaxStages], pushed;
  __shared__ float scales[kHalf == NormHalf::Behind ? kMostSharing : 1];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const Pipeline pipe{aligned, barriers, barriers + kMaxStages, p.rows * kRowBytes, (p.rows + kTokens) * kRowBytes};
  const int warp = threadIdx.x / 32;
  // All of this stands before the first copy, and divisions are long. Splits are a power of two.
  const int block = static_cast<int>(blockIdx.x) >> (31 - __clz(p.splits));
  const int split = static_cast<int>(blockIdx.x) & (p.splits - 1);
  const int row_block = p.token_blocks == 1 ? block : block / p.token_blocks;
  const int row = row_block * p.rows, token = (block - row_block * p.token_blocks) * kTokens;
  const int begin = min(p.iterations, split * p.iterations_split);
  const int end = min(p.iterations, begin + p.iterations_split);
  const Range range{begin, end, row, token};
  const bool pushes = kHalf != NormHalf::None && p.received > 0;
  const auto all_are_done = [&] {
    __syncwarp();
    if (pushes) cluster_wait();  // the other block has started
    __syncthreads();
  };
  p.stamps.start();
  if (!p.late) let_next_kernel_start();
  if (threadIdx.x == Shape::kMultiplying) {
    init_all(pipe.full, 1);
    publish_barriers();
    ask_first_weights(pipe, weights, p, range);
  }
  if (threadIdx.x == 0) {
    init_all(pipe.empty, 4 * kGroups);
    if (pushes) {
      init_barrier(&pushed, 1);
      arrive_expecting(&pushed, static_cast<uint32_t>((p.rows / kTileRows + 1 - split) / 2 * kTileRows * kTokens * 4));
    }
    publish_barriers();
  }
  __syncwarp();
  if (pushes) cluster_arrive();
  __syncthreads();

  float *partials = reinterpret_cast<float*>(aligned), *received = reinterpret_cast<float*>(aligned + p.received);
  SharedFinish<T, kHalf, Shape::kMultiplying> shared(p.out, p.norm, p.rows, row, p.splits, pushes);
  if (warp == 4 * kGroups) {
    if (threadIdx.x % 32 == 0) load_stages(pipe, weights, x, p, range);
    wait_for_previous_kernel();
    all_are_done();
  } else if (kHalf == NormHalf::Behind && warp > 4 * kGroups) {
    wait_for_previous_kernel();
    find_scales(p.norm, p.out.m, scales, warp - 4 * kGroups - 1, Shape::kScaling);
    all_are_done();
  } else {
    float sums[kTokens / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    shared.prepare();
    multiply_stages<T, kTokens, kGroups>(pipe, p, end - begin, sums);
    p.stamps.mark_first(kMultiplied);
    wait_for_previous_kernel();
    all_are_done();  // partial sums take the place of the stages
    if (pushes) {
      push_sums<kTokens>(partials, received, &pushed, p.rows, sums);
    } else {
      put_sums<kTokens>(partials, p.rows, sums);
    }
  }
  if constexpr (kHalf == NormHalf::None) {
    finish_tiles(partials, 1, p.rows / kTileRows, kTokens, row, token, p.splits, Shape::kThreads, p.out);
  } else if (pushes) {
    if (warp >= 4 * kGroups) return;
    meet_threads<Shape::kMultiplying>();  // for the block's own sums
    wait_barrier_cluster(&pushed, 0);
    p.stamps.mark_first(kMet);
    shared.run_pushed(partials, received, kTokens, scales);
  } else if (warp < 4 * kGroups) {
    shared.run(partials, kTokens, scales);
  } else {
    attend_finish(p.splits);
  }
  p.stamps.mark_first(kStored);
#endif
}

// How a variant uses a multiprocessor. Half of its shared memory is for the block of the next kernel, which then fills
// its pipeline while this one drains; many tokens need all of it.
constexpr int kHalfKilobytes = 110, kAllKilobytes = 208, kMostKilobytes = 226;
struct Variant {
  int stages;                 // at most
  int least_rows, most_rows;  // of a block, up to 64 tokens; beyond 64 rows two warpgroups share them
  int kilobytes = kHalfKilobytes;
  int most_splits = 8;
};

constexpr Variant kWide{kMaxStages, 80, 128};
constexpr Variant kNarrow{kMaxStages, 48, 64};
// A multiprocessor for itself: clusters of four would leave some multiprocessors of each group of them idle.
constexpr Variant kDeep{kMaxStages, 64, 128, kAllKilobytes, 2};
constexpr Variant kDouble{2, 80, 128};

int tokens_of(int64_t m) {
  int tokens = 8;
  while (tokens < m && tokens < kMaxTokens) tokens *= 2;
  return tokens;
}

int groups_of(int tokens, int rows) { return tokens > 64 || rows > 64 ? 2 : 1; }

// Rows of a block, and blocks along K.
struct Cut {
  int rows, splits;
  double us;
  bool alone = false;  // a block has a multiprocessor for itself
};

// Products of rows that a block does not have read on behind its last stage.
int bytes_beyond(int tokens, int rows) { return (64 * groups_of(tokens, rows) - rows) * kRowBytes; }

int stages_of(const Variant& v, int tokens, int rows) {
  const int stage = (rows + tokens) * kRowBytes, kilobytes = tokens > 64 ? kAllKilobytes : v.kilobytes;
  return std::clamp((kilobytes * 1024 - bytes_beyond(tokens, rows)) / stage, 2, v.stages);
}

// The multiprocessor with the most rows decides, though it can draw somewhat more than its share of the bandwidth.
// Every block of rows reads x through the second-level cache; a cluster adds up its parts token by token, and a large
// one is not spread evenly.
double cost_us(const CudaLinearProblem& p, const CudaLimits& limits, const Variant& v, int rows, int splits) {
  const int tokens = tokens_of(p.m);
  const int64_t row_blocks = ceil_div(p.n, rows), token_blocks = ceil_div(p.m, tokens);
  const int64_t blocks = row_blocks * token_blocks * splits;
  const double m = static_cast<double>(p.m), k = static_cast<double>(p.k);
  // A block that has a multiprocessor for itself goes at full speed sooner, but the next one waits for its end.
  const double ramp = v.kilobytes == kHalfKilobytes ? 3.6 : blocks <= limits.sms ? 2.3 : 4.6;
  const double streamed = stream_us(p, limits, blocks, 2, ramp);
  const double each = static_cast<double>(rows) * k * 2 / splits, share = limits.bytes_per_us / limits.sms;
  const double busiest = ramp + static_cast<double>(ceil_div(blocks, limits.sms)) * each / (1.1 * share);
  const double in_flight = static_cast<double>(stages_of(v, tokens, rows)) * rows * kRowBytes;
  const double slow = std::max(1.0, 48e3 / in_flight);  // latency: some 48 KB must be under way
  const double x_us = 0.1 * 2 * k * m * static_cast<double>(row_blocks) / limits.bytes_per_us;
  const double join_us = splits > 1 ? 0.2 + 0.016 * (splits - 1) * m : 0;
  const double crowded = splits > 2 ? 1 + 0.003 * std::min(m, 64.0) : 1;
  const double flops = 2 * static_cast<double>(row_blocks * rows) * k * static_cast<double>(token_blocks * tokens);
  return std::max(std::max(streamed, busiest) * slow * crowded + x_us + join_us,
                  8 + flops / (0.65 * limits.flops_per_us));
}

Cut choose_cut(const CudaLinearProblem& p, const CudaLimits& limits, const Variant& v) {
  const int most = p.m > 64 ? 128 : v.most_rows, least = p.m > 64 ? 128 : v.least_rows;
  const bool alone = v.kilobytes == kAllKilobytes;
  Cut best{most, 1, cost_us(p, limits, v, most, 1), alone};
  for (int rows = most; rows >= least; rows -= kTileRows) {
    const int64_t blocks = ceil_div(p.n, rows) * ceil_div(p.m, tokens_of(p.m));
    for (int splits = 1; splits <= v.most_splits; splits *= 2) {
      if (splits > 1 && (blocks * splits / 2 >= limits.sms || ceil_div(p.k, kDepth) / splits < 4)) break;
      const double us = cost_us(p, limits, v, rows, splits);
      if (us < best.us) best = {rows, splits, us, alone};
    }
  }
  return best;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && has_clusters(limits) && !has_rows_for_all(p, limits);
}

template <class T, int kTokens, int kGroups, NormHalf kHalf>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const Cut& cut, int stages,
                   const CudaStep& step) {
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
  params.stages = stages;
  params.token_blocks = static_cast<int>(ceil_div(p.m, kTokens));
  params.out = linear_output(p, a);
  params.norm = {a.ahead, a.squares, a.epsilon, static_cast<int>(p.k)};
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, cut.rows) * params.token_blocks * params.splits));
  shape.threads = Tile<kGroups, kHalf>::kThreads;
  shape.cluster = params.splits;
  const int stage_bytes = (cut.rows + kTokens) * kRowBytes, partials = cut.rows * kTokens / kTileRows * kTileStride * 4;
  shape.shared_bytes =
      1024 + static_cast<size_t>(std::max(stages * stage_bytes + bytes_beyond(kTokens, cut.rows), partials));
  // Sums that are pushed need room of their own, since the other block may still read its stages.
  const size_t pushed = static_cast<size_t>(ceil_div(cut.rows, 2 * kTileRows)) * kTokens * kTileStride * 4;
  if (kHalf != NormHalf::None && cut.alone && cut.splits == 2 && shape.shared_bytes + pushed <= kMostKilobytes * 1024) {
    params.received = static_cast<int>(shape.shared_bytes) - 1024;
    shape.shared_bytes += pushed;
  }
  // Where blocks fill multiprocessors the next kernel's could start on the few that are left only, far too soon.
  params.late = cut.alone;
  params.stamps = stamps_of_launch(shape.grid.x);
  return launch_kernel(flat_wgmma<T, kTokens, kGroups, kHalf>, shape, step, weights, x, params);
}

// bf16 alone: what is not divided by its root mean square yet may be beyond the range of f16.
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
  const int tokens = tokens_of(p.m), stages = stages_of(v, tokens, cut.rows);
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
  return {name,
          "flat",
          can_run_variant<kVariant>,
          estimate_variant<kVariant>,
          run_variant<kVariant>,
          nullptr,
          splits_norm<kVariant>};
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
