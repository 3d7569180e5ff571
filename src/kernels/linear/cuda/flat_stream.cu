// Flat GEMM on Hopper as one stream of weights that does not stop where kernels meet. A block that stays on its
// multiprocessor walks through its tiles with one pipeline of bulk tensor copies in half of the shared memory; the next
// kernel is let in when the last copy is asked for, and fills its own pipeline in the other half while this one adds
// up, stores and ends. Were it let in sooner, its pipeline would be full long before, and memory idle in between.
//
// Operands are swapped as in flat_wgmma.cu: weights fill the 64 rows that the instruction wants, tokens its other side.
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/tensor_map.h"
#include "kernels/linear/cuda/wgmma.cuh"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kDepth = 64;             // elements of K per stage: one row of the 128-byte swizzle
constexpr int kRowBytes = kDepth * 2;  // of a stage
constexpr int kMaxTokens = 64;
constexpr int kMaxStages = 24;
constexpr int kKilobytes = 110;  // of a multiprocessor's shared memory: the other half is the next kernel's

struct StreamParams {
  int iterations, iterations_split;  // stages along K in all, and per block of a cluster
  int rows, tiles;                   // of a tile, and how many there are
  int stages, splits;
  int partials_at;  // where sums wait for their end: behind the stages, or in their place where a block has one tile
  int ahead;        // stages that are brought into the second-level cache before their turn
  bool early;
  LinearOutput out;
};

struct Pipeline {
  uint8_t* stages;
  uint64_t *full, *empty;
  int weight_bytes, stage_bytes;
};

// What a block multiplies: its part of K, of every tile that is its.
struct Share {
  int first, step, count;  // tiles
  int begin, end;          // stages along K

  __device__ explicit Share(const StreamParams& p)
      : first(static_cast<int>(blockIdx.x) / p.splits), step(static_cast<int>(gridDim.x) / p.splits) {
    const int split = static_cast<int>(blockIdx.x) % p.splits;
    count = (p.tiles - first + step - 1) / step;
    begin = min(p.iterations, split * p.iterations_split);
    end = min(p.iterations, begin + p.iterations_split);
  }
  __device__ int stages() const { return count * (end - begin); }
};

// A place on the way through a share.
struct Place {
  const Share& share;
  int tile, i;

  __device__ explicit Place(const Share& s) : share(s), tile(s.first), i(s.begin) {}
  __device__ void next() {
    if (++i < share.end) return;
    i = share.begin;
    tile += share.step;
  }
};

// The stages of a pipeline in turn.
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void next(int stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

// The loader's part. Weights do not depend on the kernel before this one: the first stages are asked for before it
// ends.
__device__ __forceinline__ void load_stages(const Pipeline& pipe, const CUtensorMap& weights, const CUtensorMap& x,
                                            const StreamParams& p, const Share& share) {
  const uint64_t policy = evict_first_policy();  // each weight is read once
  const int total = share.stages(), first = min(total, p.stages);
  Place at(share);
  for (int i = 0; i < first; ++i, at.next()) {
    arrive_expecting(pipe.full + i, pipe.stage_bytes);
    copy_box(pipe.stages + i * pipe.stage_bytes, weights, at.i * kDepth, at.tile * p.rows, pipe.full + i, policy);
  }
  Place cached = at;
  for (int i = first; i < min(total, first + p.ahead); ++i, cached.next()) {
    prefetch_box(weights, cached.i * kDepth, cached.tile * p.rows);
  }
  wait_for_previous_kernel();
  Place x_at(share);
  for (int i = 0; i < first; ++i, x_at.next()) {
    copy_box(pipe.stages + i * pipe.stage_bytes + pipe.weight_bytes, x, x_at.i * kDepth, 0, pipe.full + i);
  }
  Turn turn;
  for (int i = first; i < total; ++i, at.next(), turn.next(p.stages)) {
    uint8_t* to = pipe.stages + turn.stage * pipe.stage_bytes;
    uint64_t* full = pipe.full + turn.stage;
    wait_barrier(pipe.empty + turn.stage, turn.parity);
    arrive_expecting(full, pipe.stage_bytes);
    copy_box(to, weights, at.i * kDepth, at.tile * p.rows, full, policy);
    copy_box(to + pipe.weight_bytes, x, at.i * kDepth, 0, full);
    if (p.ahead > 0 && i + p.ahead < total) {
      prefetch_box(weights, cached.i * kDepth, cached.tile * p.rows);
      cached.next();
    }
  }
  let_next_kernel_start();
}

template <class T, int kTokens>
__device__ __forceinline__ void multiply_stages(const Pipeline& pipe, int stages, int count, Turn& turn,
                                                float (&sums)[kTokens / 2]) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  int previous = 0;
  for (int i = 0; i < count; ++i) {
    const uint8_t* at = pipe.stages + turn.stage * pipe.stage_bytes;
    wait_barrier(pipe.full + turn.stage, turn.parity);
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
    previous = turn.stage;
    turn.next(stages);
  }
  wait_products<0>();
  if (count > 0 && lane == 0) arrive(pipe.empty + previous);
}

// Among the warpgroups that multiply.
template <int kGroups>
__device__ __forceinline__ void groups_meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(128 * kGroups) : "memory");
}

template <class T, int kTokens, int kGroups>
__device__ __forceinline__ void finish_tile(const StreamParams& p, float* partials, int tile,
                                            const float (&sums)[kTokens / 2]) {
  const int warp = threadIdx.x / 32;
  groups_meet<kGroups>();  // the products of all are done, and the sums of the tile before are read
  if (warp * kTileRows < p.rows) {
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      const float fragment[4] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
      put_fragment(partials + warp * kTokens * kTileStride, 8 * j, fragment);
    }
  }
  if (p.splits > 1) {
    cluster_barrier();
  } else {
    groups_meet<kGroups>();
  }
  constexpr int kThreads = 128 * kGroups;
  const int rank = p.splits > 1 ? cluster_rank() : 0;
  finish_items(partials, 1, p.rows / kTileRows, kTokens, tile * p.rows, 0, p.splits,
               rank * kThreads + static_cast<int>(threadIdx.x), p.splits * kThreads, p.out);
  if (p.splits > 1) cluster_meet();
}

template <int kGroups>
constexpr int kBlockThreads = 128 * kGroups + 32;

template <class T, int kTokens, int kGroups>
__global__ void __launch_bounds__(kBlockThreads<kGroups>, 1)
    flat_stream(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
                const __grid_constant__ StreamParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * kMaxStages];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const Pipeline pipe{aligned, barriers, barriers + kMaxStages, p.rows * kRowBytes, (p.rows + kTokens) * kRowBytes};
  const Share share(p);
  if (p.early) let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      init_barrier(pipe.full + i, 1);
      init_barrier(pipe.empty + i, 4 * kGroups);
    }
    publish_barriers();
  }
  __syncthreads();

  if (threadIdx.x / 32 == 4 * kGroups) {
    if (threadIdx.x % 32 == 0) load_stages(pipe, weights, x, p, share);
    __syncwarp();
    if (p.splits > 1) attend_finish(p.splits);
  } else {
    Turn turn;
    for (int tile = share.first; tile < p.tiles; tile += share.step) {
      float sums[kTokens / 2];
#pragma unroll
      for (float& sum : sums) sum = 0;
      multiply_stages<T, kTokens>(pipe, p.stages, share.end - share.begin, turn, sums);
      wait_for_previous_kernel();
      finish_tile<T, kTokens, kGroups>(p, reinterpret_cast<float*>(aligned + p.partials_at), tile, sums);
    }
  }
#endif
}

struct Variant {
  int most_splits;
  int ahead_kilobytes;
  bool early;
  int least_rows;
};

int tokens_of(int64_t m) { return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : 64; }

int groups_of(int rows) { return rows > 64 ? 2 : 1; }

// Rows of a tile, and blocks along K.
struct Cut {
  int rows, splits;
  double us;
};

int tiles_at_once(const CudaLinearProblem& p, const CudaLimits& limits, int rows, int splits) {
  const auto tiles = static_cast<int>(ceil_div(p.n, rows));
  const int each = static_cast<int>(ceil_div(tiles, limits.sms));  // as many for every block as the busiest has
  return splits > 1 ? tiles : static_cast<int>(ceil_div(tiles, each));
}

int partial_bytes(int tokens, int rows) { return rows / kTileRows * tokens * kTileStride * 4; }

// Products of rows that a tile does not have read on behind the last stage.
int bytes_beyond(int rows) { return (64 * groups_of(rows) - rows) * kRowBytes; }

bool has_one_tile(const CudaLinearProblem& p, const CudaLimits& limits, const Cut& cut) {
  return ceil_div(p.n, cut.rows) <= tiles_at_once(p, limits, cut.rows, cut.splits);
}

int stages_of(const CudaLinearProblem& p, const CudaLimits& limits, const Cut& cut) {
  const int tokens = tokens_of(p.m), stage = (cut.rows + tokens) * kRowBytes;
  const int kept = has_one_tile(p, limits, cut) ? 0 : partial_bytes(tokens, cut.rows);
  return std::clamp((kKilobytes * 1024 - bytes_beyond(cut.rows) - kept) / stage, 2, kMaxStages);
}

// The multiprocessor with the most rows decides, though it can draw somewhat more than its share of the bandwidth.
// Every tile reads x through the second-level cache, which gives half as much again as memory does.
double cost_us(const CudaLinearProblem& p, const CudaLimits& limits, int rows, int splits) {
  const double m = static_cast<double>(p.m), k = static_cast<double>(p.k), n = static_cast<double>(p.n);
  const int64_t tiles = ceil_div(p.n, rows), each = ceil_div(tiles * splits, limits.sms);
  const double ramp = 2.0, share = limits.bytes_per_us / limits.sms;
  const double busiest = static_cast<double>(each) * rows * k * 2 / splits / (1.15 * share);
  const double cached = 2 * k * (n + static_cast<double>(tiles) * m) / (1.5 * limits.bytes_per_us);
  const double join_us = splits > 1 ? 0.2 + 0.012 * (splits - 1) * m : 0;
  return ramp + std::max({2 * k * n / limits.bytes_per_us, busiest, cached}) + join_us;
}

Cut choose_cut(const CudaLinearProblem& p, const CudaLimits& limits, const Variant& v) {
  Cut best{128, 1, cost_us(p, limits, 128, 1)};
  for (int rows = 128; rows >= v.least_rows; rows -= kTileRows) {
    for (int splits = 1; splits <= v.most_splits; splits *= 2) {
      if (splits > 1 && (ceil_div(p.n, rows) * splits > limits.sms || ceil_div(p.k, kDepth) / splits < 4)) break;
      const double us = cost_us(p, limits, rows, splits);
      if (us < best.us) best = {rows, splits, us};
    }
  }
  return best;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.m <= kMaxTokens && p.k % 8 == 0 && has_clusters(limits);
}

template <class T, int kTokens, int kGroups>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const Variant& v,
                   const Cut& cut, const CudaStep& step) {
  CUtensorMap weights, x;
  if (!describe(weights, p.format, a.weights, p.n, p.k, packed_linear_stride(p.k), {kDepth, cut.rows, true}) ||
      !describe(x, p.x, a.x, p.m, p.k, a.x_stride, {kDepth, kTokens, true})) {
    return cudaErrorInvalidValue;
  }
  StreamParams params{};
  params.rows = cut.rows;
  params.tiles = static_cast<int>(ceil_div(p.n, cut.rows));
  params.splits = cut.splits;
  params.iterations = static_cast<int>(ceil_div(p.k, kDepth));
  params.iterations_split = static_cast<int>(ceil_div(params.iterations, params.splits));
  params.stages = stages_of(p, limits, cut);
  params.ahead = v.ahead_kilobytes * 1024 / (cut.rows * kRowBytes);
  params.early = v.early;
  params.out = linear_output(p, a);
  const int ring = params.stages * (cut.rows + kTokens) * kRowBytes, partials = partial_bytes(kTokens, cut.rows);
  const bool one_tile = has_one_tile(p, limits, cut);
  params.partials_at = one_tile ? 0 : ring;
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(tiles_at_once(p, limits, cut.rows, cut.splits) * cut.splits));
  shape.threads = kBlockThreads<kGroups>;
  shape.cluster = cut.splits;
  const int used = one_tile ? std::max(ring + bytes_beyond(cut.rows), partials)
                            : ring + std::max(bytes_beyond(cut.rows), partials);
  shape.shared_bytes = 1024 + static_cast<size_t>(used);
  return launch_kernel(flat_stream<T, kTokens, kGroups>, shape, step, weights, x, params);
}

template <class T, int kTokens>
cudaError_t launch_groups(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                          const Variant& v, const CudaStep& step) {
  const Cut cut = choose_cut(p, limits, v);
  return groups_of(cut.rows) == 1 ? launch<T, kTokens, 1>(p, a, limits, v, cut, step)
                                  : launch<T, kTokens, 2>(p, a, limits, v, cut, step);
}

template <class T>
cudaError_t launch_tokens(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                          const Variant& v, const CudaStep& step) {
  switch (tokens_of(p.m)) {
    case 8:
      return launch_groups<T, 8>(p, a, limits, v, step);
    case 16:
      return launch_groups<T, 16>(p, a, limits, v, step);
    case 32:
      return launch_groups<T, 32>(p, a, limits, v, step);
    default:
      return launch_groups<T, 64>(p, a, limits, v, step);
  }
}

constexpr Variant kLate{4, 0, false, 32}, kEarly{4, 0, true, 32}, kLook{4, 64, false, 32}, kFar{4, 160, false, 32},
    kTwo{2, 64, false, 48}, kWhole{1, 64, false, 32};

template <const Variant& kVariant>
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  return choose_cut(p, limits, kVariant).us + (p.gate_up ? 0 : 0);
}

template <const Variant& kVariant>
cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  return p.format == DType::BF16 ? launch_tokens<__nv_bfloat16>(p, a, limits, kVariant, step)
                                 : launch_tokens<__half>(p, a, limits, kVariant, step);
}

}  // namespace

std::span<const CudaLinearKernel> stream_kernels() {
  static constexpr CudaLinearKernel kKernels[] = {
      {"stream-late", "flat", can_run, estimate_us<kLate>, run<kLate>},
      {"stream-early", "flat", can_run, estimate_us<kEarly>, run<kEarly>},
      {"stream-look", "flat", can_run, estimate_us<kLook>, run<kLook>},
      {"stream-far", "flat", can_run, estimate_us<kFar>, run<kFar>},
      {"stream-two", "flat", can_run, estimate_us<kTwo>, run<kTwo>},
      {"stream-whole", "flat", can_run, estimate_us<kWhole>, run<kWhole>},
  };
  return kKernels;
}

}  // namespace millrace
