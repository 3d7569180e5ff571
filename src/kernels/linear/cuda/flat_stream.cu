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
  int cached;       // stages that are brought into the second-level cache before their turn
  bool early;
  LinearOutput out;
  CudaNormAhead ahead;
  const float* squares;  // of the rows whose norm x is
  float epsilon;
  int k;
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
  for (int i = first; i < min(total, first + p.cached); ++i, cached.next()) {
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
    if (p.cached > 0 && i + p.cached < total) {
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

// Between those and the three warps that find the scales.
template <int kGroups>
__device__ __forceinline__ void await_scales() {
  asm volatile("bar.sync 2, %0;" ::"n"(128 * kGroups + 96) : "memory");
}
template <int kGroups>
__device__ __forceinline__ void hand_scales_over() {
  asm volatile("bar.arrive 2, %0;" ::"n"(128 * kGroups + 96) : "memory");
}

// 1 / rms of every token, by the warps that have nothing else to do.
__device__ __forceinline__ void find_scales(const StreamParams& p, float* scales, int warp, int warps) {
  constexpr int kAtOnce = 4;
  const int fours = p.k / static_cast<int>(4 * kNormPart), lane = threadIdx.x % 32;
  for (int first = warp; first < p.out.m; first += warps * kAtOnce) {
    float sums[kAtOnce] = {};
    for (int i = lane; i < fours; i += 32) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int token = min(first + j * warps, p.out.m - 1);
        const float4 v = __ldcg(reinterpret_cast<const float4*>(p.squares) + token * fours + i);
        sums[j] += v.x + v.y + v.z + v.w;
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sums[j] += __shfl_xor_sync(0xffffffffu, sums[j], mask);
      const int token = first + j * warps;
      if (lane == 0 && token < p.out.m) {
        scales[token] = rsqrtf(sums[j] / static_cast<float>(p.k) + p.epsilon);
      }
    }
  }
}

// Eight outputs of a token: four rows of a tile and the four that lie eight behind them.
struct Item {
  int half, tile, token;
  __device__ Item(int index, int tiles) : half(index % 2), tile(index / 2 % tiles), token(index / (2 * tiles)) {}
  __device__ int row(int first_row) const { return first_row + tile * kTileRows + 4 * half; }
};

__device__ __forceinline__ float4 times(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
__device__ __forceinline__ float4 times(float4 a, float b) { return {a.x * b, a.y * b, a.z * b, a.w * b}; }
__device__ __forceinline__ float sum_of(float4 a) { return (a.x + a.y) + (a.z + a.w); }
__device__ __forceinline__ float4 four_at(const float* p) { return *reinterpret_cast<const float4*>(p); }

// What the end of a tile that has a norm behind it reads of an item. The first item of a thread is read before the
// products, so that it is there behind them.
struct ResidualItem {
  float4 low, high, low_weights, high_weights;

  __device__ void load_weights(const StreamParams& p, int row) {
    low_weights = four_at(p.ahead.weights + row);
    high_weights = four_at(p.ahead.weights + row + 8);
  }
  __device__ void load_output(const StreamParams& p, int row, int token) {
    const float* y = static_cast<const float*>(p.out.y) + token * p.out.stride + row;
    low = p.out.accumulate ? __ldcg(reinterpret_cast<const float4*>(y)) : float4{0, 0, 0, 0};
    high = p.out.accumulate ? __ldcg(reinterpret_cast<const float4*>(y + 8)) : float4{0, 0, 0, 0};
  }
};

template <class T>
__device__ __forceinline__ void store_scaled(T* to, float4 v) {
  struct alignas(8) Four {
    T at[4];
  };
  *reinterpret_cast<Four*>(to) = {rounded<T>(v.x), rounded<T>(v.y), rounded<T>(v.z), rounded<T>(v.w)};
}

// Adds to the residual stream, and leaves half of its norm. The two halves of a tile are neighbours in a warp.
template <class T>
__device__ __forceinline__ void store_ahead(const StreamParams& p, const Item& item, int row,
                                            const ResidualItem& before, float4 low, float4 high) {
  low = add(add_bias(p.out, row, low), before.low);
  high = add(add_bias(p.out, row + 8, high), before.high);
  float* y = static_cast<float*>(p.out.y) + item.token * p.out.stride + row;
  *reinterpret_cast<float4*>(y) = low;
  *reinterpret_cast<float4*>(y + 8) = high;
  T* scaled = static_cast<T*>(p.ahead.scaled) + item.token * p.ahead.stride + row;
  store_scaled(scaled, times(low, before.low_weights));
  store_scaled(scaled + 8, times(high, before.high_weights));
  float squares = sum_of(times(low, low)) + sum_of(times(high, high));
  squares += __shfl_xor_sync(3u << (threadIdx.x % 32 & ~1u), squares, 1);
  if (item.half == 0) p.ahead.squares[item.token * (p.out.n / kNormPart) + row / kNormPart] = squares;
}

// What all blocks of the cluster have for an output.
__device__ __forceinline__ float4 add_splits(const float* at, int splits) {
  if (splits == 1) return four_at(at);
  float4 sum = {0, 0, 0, 0};
#pragma unroll 1
  for (int split = 0; split < splits; split += 2) {  // a power of two
    const float4 one = load_cluster(at, split), other = load_cluster(at, split + 1);
    sum = add(sum, add(one, other));
  }
  return sum;
}

// The warpgroups that multiply, over all tiles of a block.
template <class T, int kTokens, int kGroups>
class Multiplier {
  static constexpr int kThreads = 128 * kGroups;

 public:
  __device__ __forceinline__ Multiplier(const StreamParams& p, const Pipeline& pipe, const Share& share,
                                        float* partials, const float* scales)
      : p_(p), pipe_(pipe), share_(share), partials_(partials), scales_(scales) {
    first_ = (p.splits > 1 ? cluster_rank() * kThreads : 0) + static_cast<int>(threadIdx.x);
    items_ = p.rows / kTileRows * p.out.m * 2;
  }

  __device__ __forceinline__ void run() {
    const Item item(first_, p_.rows / kTileRows);
    const int row = item.row(share_.first * p_.rows);
    const bool reads = p_.ahead.weights != nullptr && first_ < items_ && row < p_.out.n;
    if (reads) residual_.load_weights(p_, row);
    wait_for_previous_kernel();
    if (reads) residual_.load_output(p_, row, item.token);
    Turn turn;
    for (int tile = share_.first; tile < p_.tiles; tile += share_.step) {
      float sums[kTokens / 2];
#pragma unroll
      for (float& sum : sums) sum = 0;
      multiply_stages<T, kTokens>(pipe_, p_.stages, share_.end - share_.begin, turn, sums);
      if (p_.squares != nullptr && tile == share_.first) await_scales<kGroups>();
      gather(sums);
      finish(tile);
    }
  }

 private:
  // Sums go where all find those of their items.
  __device__ __forceinline__ void gather(const float (&sums)[kTokens / 2]) {
    const int warp = threadIdx.x / 32;
    groups_meet<kGroups>();  // the products of all are done, and the sums of the tile before are read
    if (warp * kTileRows < p_.rows) {
#pragma unroll
      for (int j = 0; j < kTokens / 8; ++j) {
        const float fragment[4] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
        put_fragment(partials_ + warp * kTokens * kTileStride, 8 * j, fragment);
      }
    }
    if (p_.splits > 1) {
      cluster_barrier();
    } else {
      groups_meet<kGroups>();
    }
  }

  __device__ __forceinline__ void finish(int tile) {
    const int tiles = p_.rows / kTileRows;
#pragma unroll 1
    for (int index = first_; index < items_; index += p_.splits * kThreads) {
      const Item item(index, tiles);
      const int row = item.row(tile * p_.rows);
      const float* at = partials_ + (item.tile * kTokens + item.token) * kTileStride + 4 * item.half;
      float4 low = add_splits(at, p_.splits), high = add_splits(at + 8, p_.splits);
      if (p_.squares != nullptr) low = times(low, scales_[item.token]), high = times(high, scales_[item.token]);
      if (p_.ahead.weights == nullptr) {
        store_half_tile(p_.out, item.token, row - 4 * item.half, item.half, low, high);
      } else if (row < p_.out.n) {
        if (index != first_ || tile != share_.first) {
          residual_.load_weights(p_, row);
          residual_.load_output(p_, row, item.token);
        }
        store_ahead<T>(p_, item, row, residual_, low, high);
      }
    }
    if (p_.splits > 1) cluster_meet();  // a block's shared memory must outlive its readers
  }

  const StreamParams& p_;
  const Pipeline& pipe_;
  const Share& share_;
  float* partials_;
  const float* scales_;
  int first_, items_;
  ResidualItem residual_;
};

template <int kGroups>
constexpr int kBlockThreads = 128 * (kGroups + 1);

template <class T, int kTokens, int kGroups>
__global__ void __launch_bounds__(kBlockThreads<kGroups>, 1)
    flat_stream(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
                const __grid_constant__ StreamParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * kMaxStages];
  __shared__ float scales[kMaxTokens];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const Pipeline pipe{aligned, barriers, barriers + kMaxStages, p.rows * kRowBytes, (p.rows + kTokens) * kRowBytes};
  const Share share(p);
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4 * kGroups;  // below zero: one that multiplies
  if (p.early) let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      init_barrier(pipe.full + i, 1);
      init_barrier(pipe.empty + i, 4 * kGroups);
    }
    publish_barriers();
  }
  __syncthreads();

  if (warp < 0) {
    Multiplier<T, kTokens, kGroups>(p, pipe, share, reinterpret_cast<float*>(aligned + p.partials_at), scales).run();
    return;
  }
  if (warp == 0) {
    if (threadIdx.x % 32 == 0) load_stages(pipe, weights, x, p, share);
    __syncwarp();
  } else if (p.squares != nullptr) {
    wait_for_previous_kernel();
    find_scales(p, scales, warp - 1, 3);
    hand_scales_over<kGroups>();
  }
  if (p.splits > 1) attend_finish(p.splits);
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

// bf16 alone: what is not divided by its root mean square yet may be beyond the range of f16.
bool splits_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.format == DType::BF16 && p.n % kTileRows == 0 && p.k % (4 * kNormPart) == 0;
}

bool can_store_ahead(const CudaLinearProblem& p, const CudaLinearArgs& a) {
  return p.y == DType::F32 && !p.gate_up && linear_output(p, a).aligned && a.ahead.stride % 4 == 0;
}

template <class T, int kTokens, int kGroups>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const Variant& v,
                   const Cut& cut, const CudaStep& step) {
  if (a.ahead.weights != nullptr && !can_store_ahead(p, a)) return cudaErrorInvalidValue;
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
  params.cached = v.ahead_kilobytes * 1024 / (cut.rows * kRowBytes);
  params.early = v.early;
  params.out = linear_output(p, a);
  params.ahead = a.ahead;
  params.squares = a.squares;
  params.epsilon = a.epsilon;
  params.k = static_cast<int>(p.k);
  const int ring = params.stages * (cut.rows + kTokens) * kRowBytes, partials = partial_bytes(kTokens, cut.rows);
  const bool one_tile = has_one_tile(p, limits, cut);
  params.partials_at = one_tile ? 0 : ring;
  LaunchShape shape;
  shape.most_shared = true;
  shape.grid = dim3(static_cast<unsigned>(tiles_at_once(p, limits, cut.rows, cut.splits) * cut.splits));
  shape.threads = kBlockThreads<kGroups>;
  shape.cluster = cut.splits;
  const int used =
      one_tile ? std::max(ring + bytes_beyond(cut.rows), partials) : ring + std::max(bytes_beyond(cut.rows), partials);
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
      {"stream-late", "flat", can_run, estimate_us<kLate>, run<kLate>, nullptr, splits_norm},
      {"stream-early", "flat", can_run, estimate_us<kEarly>, run<kEarly>, nullptr, splits_norm},
      {"stream-look", "flat", can_run, estimate_us<kLook>, run<kLook>, nullptr, splits_norm},
      {"stream-far", "flat", can_run, estimate_us<kFar>, run<kFar>, nullptr, splits_norm},
      {"stream-two", "flat", can_run, estimate_us<kTwo>, run<kTwo>, nullptr, splits_norm},
      {"stream-whole", "flat", can_run, estimate_us<kWhole>, run<kWhole>, nullptr, splits_norm},
  };
  return kKernels;
}

}  // namespace millrace
