// Flat GEMM for a few tokens in one wave: gemv-rows with tensor cores. One block on each multiprocessor streams tiles
// of 16 rows from memory straight into registers; its warps share K, and so do the two blocks of a cluster where x is
// too long for one. No warp waits for another but at the end of a tile, and then with the loads of the next one under
// way.
//
// The order of K inside a tensor-core step is free as long as both operands use the same: lane t of a quad takes
// elements 8 t .. 8 t + 7 of every 32, so that a fragment is one 16-byte load from a row as the file holds it. x lies
// in shared memory in the order of its fragments. Blocks take half of a multiprocessor's registers, so that those of
// the next kernel can fetch their first weights beside them.
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = 32 * kWarps;
constexpr int kHalf = 32;               // elements of a row in one load of a quad
constexpr int kStep = 2 * kHalf;        // that a warp takes at once: a whole line of each row
constexpr int kRound = kStep * kWarps;  // that the block takes at once
constexpr int kMaxXBytes = 112 * 1024;  // of a block
constexpr int kMaxNormed = 8192;        // columns of a norm that is taken along

struct FlatRowsParams {
  const void* weights;
  int64_t stride;  // of weights, elements
  const void* x;
  int64_t x_stride;
  const float* norm;  // [k] or null: x is f32, and its RMS norm is what is multiplied
  float epsilon;
  int k, k_split, splits;  // a block takes k_split columns: whole steps
  int tiles;
  LinearOutput out;
};

template <int kGroups>
struct Space {
  static constexpr int kTokens = 8 * kGroups;
  static constexpr int kPartFloats = kTokens * kTileStride;  // of one warp
  // Partial sums of two tiles: one is added up while the next is put down.
  static constexpr int kPartialBytes = 2 * kWarps * kPartFloats * 4;
  static __host__ __device__ constexpr int x_bytes(int columns) { return columns / kHalf * kGroups * 512; }
};

// Where a warp's next loads go: step after step of its part of K, tile after tile. Blocks begin at places of their own
// in K: rows a power of two apart would else ask the same memory channels all at once. Few numbers live through the
// main loop, since registers are what bounds it.
template <class T>
struct TileStream {
  const FlatRowsParams& p;
  int tile, round, first_round;

  // Row g and row g + 8 of the quad, two halves of a step each.
  __device__ __forceinline__ void load(uint4 (&to)[4], int begin, int end, int rounds) {
    const int lane = threadIdx.x % 32, row = tile * kTileRows + lane / 4;
    const int column = begin + round * kRound + static_cast<int>(threadIdx.x) / 32 * kStep + lane % 4 * 8;
    const T* low = static_cast<const T*>(p.weights) + row * p.stride + column;
    const T* high = low + 8 * p.stride;
    const uint64_t policy = evict_first_policy();
    const bool in_low = row < p.out.n, in_high = row + 8 < p.out.n;
    to[0] = load_stream_if(low, in_low && column < end, policy);
    to[1] = load_stream_if(low + kHalf, in_low && column + kHalf < end, policy);
    to[2] = load_stream_if(high, in_high && column < end, policy);
    to[3] = load_stream_if(high + kHalf, in_high && column + kHalf < end, policy);
    round = round + 1 == rounds ? 0 : round + 1;
    if (round == first_round) tile += static_cast<int>(gridDim.x) / p.splits;
  }
};

template <class T>
__device__ __forceinline__ uint32_t pack2(float a, float b) {
  const T two[2] = {rounded<T>(a), rounded<T>(b)};
  return *reinterpret_cast<const uint32_t*>(two);
}

__device__ __forceinline__ float squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

// Eight elements of a row of x in f32 times the norm's weights. What the norm divides by is the same for a whole token:
// it comes in at the end.
template <class T>
__device__ __forceinline__ uint4 weighted(float4 a, float4 b, const float* weights) {
  const float4 u = *reinterpret_cast<const float4*>(weights), v = *reinterpret_cast<const float4*>(weights + 4);
  return {pack2<T>(a.x * u.x, a.y * u.y), pack2<T>(a.z * u.z, a.w * u.w), pack2<T>(b.x * v.x, b.y * v.y),
          pack2<T>(b.z * v.z, b.w * v.w)};
}

// The norm's weights do not depend on the kernel before this one.
__device__ __forceinline__ void copy_norm_weights(const FlatRowsParams& p, int begin, int end, float* to) {
  for (int i = static_cast<int>(threadIdx.x) * 4; begin + i < end; i += kThreads * 4) {
    *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(p.norm + begin + i);
  }
}

// x of columns begin .. end as fragments: [half step][group of tokens][lane]; zeros where there is none. With a norm,
// `totals` become this block's part of each token's sum of squares.
template <class T, int kGroups, bool kNorm>
__device__ __forceinline__ void place_x(const FlatRowsParams& p, int begin, int end, uint4* to, float* totals,
                                        const float* norm_weights, float* parts) {
  constexpr int kTokens = 8 * kGroups, kAtOnce = kNorm ? 2 : 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int halves = (end - begin + kStep - 1) / kStep * 2;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int token = group * 8 + lane / 4;
    const int64_t row = token * p.x_stride + begin + lane % 4 * 8;
    const int left = token < p.out.m ? end - begin - lane % 4 * 8 : 0;
    float sum = 0;
#pragma unroll 1
    for (int half = warp; half < halves; half += kAtOnce * kWarps) {
      if constexpr (kNorm) {
        float4 a[kAtOnce], b[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int column = (half + i * kWarps) * kHalf;
          const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(p.x) + row + column);
          a[i] = column < left ? __ldcg(from) : float4{0, 0, 0, 0};
          b[i] = column < left ? __ldcg(from + 1) : float4{0, 0, 0, 0};
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int at = half + i * kWarps;
          sum += squares(a[i]) + squares(b[i]);
          if (at < halves) {
            to[(at * kGroups + group) * 32 + lane] = weighted<T>(a[i], b[i], norm_weights + at * kHalf + lane % 4 * 8);
          }
        }
      } else {
        uint4 x[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int column = (half + i * kWarps) * kHalf;
          x[i] = column < left ? load_shared_input(static_cast<const T*>(p.x) + row + column) : uint4{0, 0, 0, 0};
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int at = half + i * kWarps;
          if (at < halves) to[(at * kGroups + group) * 32 + lane] = x[i];
        }
      }
    }
    if constexpr (kNorm) {
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (lane % 4 == 0) parts[warp * kTokens + token] = sum;
    }
  }
  __syncthreads();
  if constexpr (kNorm) {
    if (threadIdx.x < kTokens) {
      float total = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) total += parts[i * kTokens + threadIdx.x];
      totals[threadIdx.x] = total;  // read behind the first tile's barrier
    }
  }
}

template <class T, int kGroups>
__device__ __forceinline__ void multiply_step(const uint4 (&w)[4], const uint4* x, float (&sums)[kGroups][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 low = w[half], high = w[2 + half];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const uint4 b = x[(half * kGroups + group) * 32];
      mma<T>(sums[group], low.x, high.x, low.y, high.y, b.x, b.y);
      mma<T>(sums[group], low.z, high.z, low.w, high.w, b.z, b.w);
    }
  }
}

__device__ __forceinline__ float load_cluster_float(const float* p, int rank) {
#if __CUDA_ARCH__ >= 900
  float v;
  asm volatile("{\n.reg .u32 remote;\nmapa.shared::cluster.u32 remote, %1, %2;\nld.shared::cluster.f32 %0, [remote];\n}"
               : "=f"(v)
               : "r"(shared_address(p)), "r"(rank)
               : "memory");
  return v;
#else
  return *p;
#endif
}

__device__ __forceinline__ float load_output(const LinearOutput& out, int64_t at) {
  if (out.type == DType::BF16) return to_float(static_cast<const __nv_bfloat16*>(out.y)[at]);
  if (out.type == DType::F16) return to_float(static_cast<const __half*>(out.y)[at]);
  return static_cast<const float*>(out.y)[at];
}

// The thread's outputs of a tile: rows r and r + 8 for one token, of which it stores one where they are gate and up.
// Warps take turns, and the blocks of a cluster share the tokens.
template <int kGroups>
struct TileEnd {
  static constexpr int kTokens = 8 * kGroups;
  int token, row;
  bool live;
  float before[2];  // of y, where it is added to: there when the tile is done

  __device__ __forceinline__ TileEnd(const FlatRowsParams& p, int tile, int turn, int rank) : before{0, 0} {
    const int workers = kTokens / p.splits * 8;  // threads
    const int thread = (static_cast<int>(threadIdx.x) + kThreads - turn * workers % kThreads) % kThreads;
    token = rank * (kTokens / p.splits) + thread / 8;
    row = tile * kTileRows + thread % 8;
    live = thread < workers && token < p.out.m && row < p.out.n;
    if (!live || !p.out.accumulate) return;
    before[0] = load_output(p.out, token * p.out.stride + (p.out.gate_up ? tile * 8 + thread % 8 : row));
    if (!p.out.gate_up && row + 8 < p.out.n) before[1] = load_output(p.out, token * p.out.stride + row + 8);
  }

  __device__ __forceinline__ void finish(const FlatRowsParams& p, const float* partials, const float* totals) const {
    if (!live) return;
    float low = 0, high = 0;
    const float* at = partials + token * kTileStride + row % kTileRows;
#pragma unroll 1
    for (int split = 0; split < p.splits; ++split) {
#pragma unroll 4
      for (int warp = 0; warp < kWarps; ++warp) {
        const float* part = at + warp * Space<kGroups>::kPartFloats;
        low += p.splits > 1 ? load_cluster_float(part, split) : *part;
        high += p.splits > 1 ? load_cluster_float(part + 8, split) : part[8];
      }
    }
    if (p.norm != nullptr) {
      float total = p.splits > 1 ? 0 : totals[token];
      for (int split = 0; p.splits > 1 && split < p.splits; ++split) total += load_cluster_float(totals + token, split);
      const float inverse = rsqrtf(total / static_cast<float>(p.k) + p.epsilon);
      low *= inverse;
      high *= inverse;
    }
    store(p, low, high);
  }

  __device__ __forceinline__ void store(const FlatRowsParams& p, float low, float high) const {
    const bool both = row + 8 < p.out.n;
    if (p.out.bias != nullptr) {
      low += p.out.bias[row];
      if (both) high += p.out.bias[row + 8];
    }
    LinearOutput out = p.out;
    out.accumulate = false;
    float squares = 0;
    if (p.out.gate_up) {
      const int column = row / kTileRows * 8 + row % 8;
      squares = store_four(out, token, column, {silu_times(low, high) + before[0], 0, 0, 0}, 1);
    } else {
      squares = store_four(out, token, row, {low + before[0], 0, 0, 0}, 1);
      if (both) squares += store_four(out, token, row + 8, {high + before[1], 0, 0, 0}, 1);
    }
    if (p.out.sum_squares != nullptr) atomicAdd(p.out.sum_squares + token, squares);
  }
};

template <class T, int kGroups, bool kNorm>
__global__ void __launch_bounds__(kThreads, 2) flat_rows(const __grid_constant__ FlatRowsParams p) {
  using S = Space<kGroups>;
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ float totals[S::kTokens], parts[kNorm ? kWarps * S::kTokens : 1];
  float* partials = reinterpret_cast<float*>(shared);
  uint4* x = reinterpret_cast<uint4*>(shared + S::kPartialBytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rank = static_cast<int>(blockIdx.x) % p.splits, clusters = static_cast<int>(gridDim.x) / p.splits;
  const int begin = rank * p.k_split, end = min(p.k, begin + p.k_split);
  const int rounds = (p.k_split + kRound - 1) / kRound;
  const int first_tile = static_cast<int>(blockIdx.x) / p.splits;

  const int first_round = first_tile % rounds;
  TileStream<T> stream{p, first_tile, first_round, first_round};
  uint4 ahead[2][4];
  stream.load(ahead[0], begin, end, rounds);
  stream.load(ahead[1], begin, end, rounds);
  float* norm_weights = reinterpret_cast<float*>(shared + S::kPartialBytes + S::x_bytes(p.k_split));
  if constexpr (kNorm) {
    copy_norm_weights(p, begin, end, norm_weights);
    __syncthreads();
  }
  wait_for_previous_kernel();
  place_x<T, kGroups, kNorm>(p, begin, end, x, totals, norm_weights, parts);
  let_next_kernel_start();

  float sums[kGroups][4] = {};
  int round = first_round, turn = 0;
#pragma unroll 1
  while (first_tile + turn * clusters < p.tiles) {
#pragma unroll
    for (int phase = 0; phase < 2; ++phase) {
      const int half = round * (kRound / kHalf) + warp * 2;  // the last round may have no step for this warp
      if (half * kHalf < end - begin) multiply_step<T, kGroups>(ahead[phase], x + half * kGroups * 32 + lane, sums);
      stream.load(ahead[phase], begin, end, rounds);
      round = round + 1 == rounds ? 0 : round + 1;
      if (round != first_round) continue;

      float* place = partials + turn % 2 * kWarps * S::kPartFloats;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        put_fragment(place + warp * S::kPartFloats, group * 8, sums[group]);
#pragma unroll
        for (float& sum : sums[group]) sum = 0;
      }
      const TileEnd<kGroups> outputs(p, first_tile + turn * clusters, turn, rank);
      if (p.splits > 1) {
        cluster_barrier();
      } else {
        __syncthreads();
      }
      outputs.finish(p, place, totals);
      ++turn;
      if (first_tile + turn * clusters >= p.tiles) break;
    }
  }
  if (p.splits > 1) cluster_meet();  // a block's shared memory must outlive its readers
}

// Blocks that share K: as few as can hold x.
int splits_of(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int group_bytes = p.m <= 8 ? 512 : 1024;
  for (int splits = 1; splits <= (has_clusters(limits) ? 2 : 1); ++splits) {
    if (round_up(ceil_div(p.k, splits), kStep) / kHalf * group_bytes <= kMaxXBytes) return splits;
  }
  return 0;
}

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.m <= 16 && p.k % 8 == 0 && limits.capability >= 80 &&
         shared_kilobytes(limits) >= 160 && (!p.gate_up || p.n % 16 == 0) && splits_of(p, limits) > 0;
}

// What the norm divides by comes in behind the products, so that x meets them undivided: f16 has no range for that.
bool takes_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.format == DType::BF16 && p.k <= kMaxNormed;
}

// The blocks with the most tiles decide, though those can draw somewhat more than their share of the bandwidth.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int splits = splits_of(p, limits);
  const int64_t tiles = ceil_div(p.n, kTileRows), clusters = limits.sms / splits;
  const double uneven = static_cast<double>(round_up(tiles, clusters)) / static_cast<double>(tiles);
  return stream_us(p, limits, tiles * splits, 1, 2.5 + 0.5 * splits) * std::clamp(0.5 + 0.5 * uneven, 1.0, 1.5);
}

template <class T, int kGroups, bool kNorm>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                   const CudaStep& step) {
  using S = Space<kGroups>;
  FlatRowsParams params{};
  params.weights = a.weights;
  params.stride = packed_linear_stride(p.k);
  params.x = a.x;
  params.x_stride = a.x_stride;
  params.norm = a.norm;
  params.epsilon = a.epsilon;
  params.k = static_cast<int>(p.k);
  params.splits = splits_of(p, limits);
  params.k_split = static_cast<int>(round_up(ceil_div(p.k, params.splits), kStep));
  params.tiles = static_cast<int>(ceil_div(p.n, kTileRows));
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(std::min(params.tiles, limits.sms / params.splits) * params.splits));
  shape.threads = kThreads;
  shape.cluster = params.splits;
  const int norm_bytes = kNorm ? params.k_split * 4 : 0;
  shape.shared_bytes = static_cast<size_t>(S::kPartialBytes + S::x_bytes(params.k_split) + norm_bytes);
  return launch_kernel(flat_rows<T, kGroups, kNorm>, shape, step, params);
}

template <class T>
cudaError_t launch_groups(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                          const CudaStep& step) {
  return p.m <= 8 ? launch<T, 1, false>(p, a, limits, step) : launch<T, 2, false>(p, a, limits, step);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  if (a.norm != nullptr) {
    if (!takes_norm(p, limits)) return cudaErrorInvalidValue;
    return p.m <= 8 ? launch<__nv_bfloat16, 1, true>(p, a, limits, step)
                    : launch<__nv_bfloat16, 2, true>(p, a, limits, step);
  }
  return p.format == DType::BF16 ? launch_groups<__nv_bfloat16>(p, a, limits, step)
                                 : launch_groups<__half>(p, a, limits, step);
}

}  // namespace

const CudaLinearKernel& flat_rows_kernel() {
  static constexpr CudaLinearKernel kKernel{"flat-rows", "flat", can_run, estimate_us, run, takes_norm};
  return kKernel;
}

}  // namespace millrace
