// Flat GEMM for a few tokens in one wave: a block for each multiprocessor, which stays until all rows are done.
//
// A warp of its own keeps a ring of bulk copies full, so that weights stream without a break from one tile of rows to
// the next. It never waits for the kernel before this one: while that one still runs, it fills the ring and has what
// comes next brought into the second-level cache. The ring takes half of a multiprocessor's shared memory: the other
// half is for the kernel that follows, which does the same.
//
// As in flat_mma, lane t of a quad takes elements 8 t .. 8 t + 7 of every 32, so that a fragment is one 16-byte load.
#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/tensor_map.h"
#include "kernels/linear/cuda/wgmma.cuh"

#include <algorithm>

namespace millrace {
namespace {

constexpr int kWarps = 8;  // that multiply
constexpr int kThreads = 32 * (kWarps + 1);
constexpr int kMaxTokens = 16;
constexpr int kSharedBytes = 112 * 1024;  // two blocks fit on a multiprocessor
constexpr int kMaxStages = 8;
constexpr int kBoxColumns = 256;                        // of K; a box is as wide as the copies allow
constexpr int kBoxPitch = kBoxColumns * 2;              // bytes
constexpr int kStageBytes = 2 * kTileRows * kBoxPitch;  // two boxes of one tile side by side, or one box of two tiles
constexpr int kWarpColumns = 64;                        // of a stage: each warp takes 16 rows of it

struct StreamParams {
  const void* x;
  int64_t x_stride;
  int k, pieces, tiles, stages;  // pieces of K, of a stage each; tiles of rows
  int ahead;                     // stages that a block asks for beyond its ring before the stream begins
  const float* norm;             // [k]: of the one token, which is f32
  float epsilon;
  LinearOutput out;
};

// Tokens in groups of eight, and tiles of 16 rows that are multiplied at once: x is read again for each of them.
template <int kGroups, int kTiles>
struct Ring {
  static constexpr int kRows = kTileRows * kTiles;
  static constexpr int kPiece = 2 * kBoxColumns / kTiles;  // elements of K in a stage
  static constexpr int kTokens = 8 * kGroups;
  static constexpr int kParts = kWarps / kTiles;                    // warps that share a tile
  static constexpr int kAhead = 2 / kGroups;                        // pieces of x that are loaded ahead of their use
  static constexpr int kPartials = kWarps * kTokens * kTileStride;  // floats; there are two of them
};

// A block's walk over the pieces of its tiles. K begins at a different place for each block: rows a power of two apart
// would else ask the same memory channels all at once.
struct Walk {
  int tile, piece, left;

  __device__ explicit Walk(const StreamParams& p)
      : tile(static_cast<int>(blockIdx.x)), piece(tile % p.pieces), left(p.pieces) {}
  __device__ bool done(const StreamParams& p) const { return tile >= p.tiles; }
  __device__ void next(const StreamParams& p) {
    piece = piece + 1 == p.pieces ? 0 : piece + 1;
    if (--left == 0) {
      left = p.pieces;
      tile += static_cast<int>(gridDim.x);
    }
  }
};

// The loader's part, one thread's.
template <class R>
__device__ __forceinline__ void load_stages(const StreamParams& p, const CUtensorMap& weights, uint8_t* stages,
                                            uint64_t* full, uint64_t* empty) {
  constexpr int kBoxes = R::kPiece / kBoxColumns;
  int stage = 0;
  const auto copy = [&](const Walk& at) {
    arrive_expecting(full + stage, kStageBytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      copy_box(stages + stage * kStageBytes + box * kStageBytes / kBoxes, weights,
               at.piece * R::kPiece + box * kBoxColumns, at.tile * R::kRows, full + stage);
    }
    stage = stage + 1 == p.stages ? 0 : stage + 1;
  };
  Walk walk(p);
  for (int i = 0; i < p.stages && !walk.done(p); ++i, walk.next(p)) copy(walk);
  Walk ahead = walk;
  for (int i = 0; i < p.ahead && !ahead.done(p); ++i, ahead.next(p)) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      prefetch_box(weights, ahead.piece * R::kPiece + box * kBoxColumns, ahead.tile * R::kRows);
    }
  }
  uint32_t parity = 0;
  for (; !walk.done(p); walk.next(p)) {
    wait_barrier(empty + stage, parity);
    copy(walk);
    if (stage == 0) parity ^= 1;
  }
}

// Among the warps that multiply.
__device__ __forceinline__ void meet_multipliers() { asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory"); }

// The RMS norm of the one token, which every block computes for itself; kEach fours a thread. Its weights are fetched
// before the kernel that writes the token has ended.
template <class T, int kEach>
__device__ __forceinline__ void norm_token(const StreamParams& p, T* to) {
  __shared__ float parts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const auto column = [&](int e) { return (e * 32 * kWarps + static_cast<int>(threadIdx.x)) * 4; };
  float4 weights[kEach], x[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (column(e) < p.k) weights[e] = *reinterpret_cast<const float4*>(p.norm + column(e));
  }
  wait_for_previous_kernel();
  float squares = 0;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(p.x) + column(e));
    x[e] = column(e) < p.k ? __ldcg(from) : float4{0, 0, 0, 0};
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) squares += x[e].x * x[e].x + x[e].y * x[e].y + x[e].z * x[e].z + x[e].w * x[e].w;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, mask);
  if (lane == 0) parts[warp] = squares;
  meet_multipliers();
  float total = 0;
#pragma unroll
  for (const float part : parts) total += part;
  const float inverse = rsqrtf(total / static_cast<float>(p.k) + p.epsilon);
  struct alignas(8) Four {
    T at[4];
  };
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const Four four{rounded<T>(x[e].x * inverse * weights[e].x), rounded<T>(x[e].y * inverse * weights[e].y),
                    rounded<T>(x[e].z * inverse * weights[e].z), rounded<T>(x[e].w * inverse * weights[e].w)};
    if (column(e) < p.k) *reinterpret_cast<Four*>(to + column(e)) = four;
  }
  meet_multipliers();
}

// What one warp multiplies with: its columns of the next pieces, for the lane's token of each group. Every tile takes
// the pieces in the same order, and uses slots from the first on.
template <class T, class R, int kGroups, bool kNormed>
class Tokens {
 public:
  uint4 at[R::kAhead][2][kGroups];  // of 32 columns each

  __device__ __forceinline__ Tokens(const StreamParams& p, const T* normed)
      : p_(p),
        column_(static_cast<int>(threadIdx.x) / 32 % (R::kPiece / kWarpColumns) * kWarpColumns +
                static_cast<int>(threadIdx.x) % 4 * 8),
        token_(static_cast<int>(threadIdx.x) % 32 / 4),
        piece_(Walk(p).piece),
        left_(p.pieces) {
    x_ = kNormed ? normed : static_cast<const T*>(p.x) + token_ * p.x_stride;
  }

  // The piece after the one that was loaded last; nothing where the slots go on behind the last of a tile.
  __device__ __forceinline__ void load(int slot) {
    if (left_ > 0) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int column = piece_ * R::kPiece + column_ + step * 32;
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          const bool live = token_ + group * 8 < p_.out.m && column < p_.k;
          at[slot][step][group] = uint4{0, 0, 0, 0};
          if (live && kNormed) at[slot][step][group] = *reinterpret_cast<const uint4*>(x_ + column);
          if (live && !kNormed) at[slot][step][group] = load_shared_input(x_ + group * 8 * p_.x_stride + column);
        }
      }
      piece_ = piece_ + 1 == p_.pieces ? 0 : piece_ + 1;
    }
    --left_;
    if (slot == R::kAhead - 1 && left_ <= 0) left_ = p_.pieces;
  }

 private:
  const StreamParams& p_;
  const T* x_;
  int column_, token_, piece_, left_;
};

// Sixteen rows of 64 columns. Rows lie a multiple of 128 bytes apart: odd ones are read in the other order, so that
// neighbours fall on different banks.
template <class T, int kGroups>
__device__ __forceinline__ void multiply_piece(const uint8_t* stage, const uint4 (&x)[2][kGroups],
                                               float (&sums)[kGroups][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool odd = lane / 4 % 2 != 0;
  const uint8_t* at = stage + warp / 4 * kTileRows * kBoxPitch + lane / 4 * kBoxPitch + warp % 4 * 128 + lane % 4 * 16;
  const int first = odd ? 64 : 0, second = 64 - first;
  const uint4 low0 = *reinterpret_cast<const uint4*>(at + first);
  const uint4 high0 = *reinterpret_cast<const uint4*>(at + 8 * kBoxPitch + first);
  const uint4 low1 = *reinterpret_cast<const uint4*>(at + second);
  const uint4 high1 = *reinterpret_cast<const uint4*>(at + 8 * kBoxPitch + second);
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const bool swapped = odd == (step == 0);
    const uint4 low{swapped ? low1.x : low0.x, swapped ? low1.y : low0.y, swapped ? low1.z : low0.z,
                    swapped ? low1.w : low0.w};
    const uint4 high{swapped ? high1.x : high0.x, swapped ? high1.y : high0.y, swapped ? high1.z : high0.z,
                     swapped ? high1.w : high0.w};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      mma<T>(sums[group], low.x, high.x, low.y, high.y, x[step][group].x, x[step][group].y);
      mma<T>(sums[group], low.z, high.z, low.w, high.w, x[step][group].z, x[step][group].w);
    }
  }
}

template <class T, int kGroups, int kTiles, bool kNormed>
__device__ __forceinline__ void multiply_stages(const StreamParams& p, const uint8_t* stages, float* partials,
                                                const T* normed, uint64_t* full, uint64_t* empty) {
  using R = Ring<kGroups, kTiles>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Tokens<T, R, kGroups, kNormed> x(p, normed);
#pragma unroll
  for (int slot = 0; slot < R::kAhead; ++slot) x.load(slot);
  int stage = 0, done = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < p.tiles; tile += static_cast<int>(gridDim.x), ++done) {
    float sums[kGroups][4] = {};
#pragma unroll 1
    for (int i = 0; i < p.pieces; i += R::kAhead) {
#pragma unroll
      for (int slot = 0; slot < R::kAhead; ++slot) {
        if (i + slot < p.pieces) {
          wait_barrier(full + stage, parity);
          multiply_piece<T, kGroups>(stages + stage * kStageBytes, x.at[slot], sums);
          __syncwarp();
          if (lane == 0) arrive(empty + stage);
          stage = stage + 1 == p.stages ? 0 : stage + 1;
          if (stage == 0) parity ^= 1;
        }
        x.load(slot);
      }
    }
    // [part][tile]: the warps of a tile are neighbours.
    float* place = partials + done % 2 * R::kPartials;
    const int part = warp % R::kParts, own = warp / R::kParts;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      put_fragment(place + (part * kTiles + own) * R::kTokens * kTileStride, group * 8, sums[group]);
    }
    meet_multipliers();  // the other half of the partial sums is free again, too
    const int item = (static_cast<int>(threadIdx.x) + 32 * (kWarps - done % kWarps)) % (32 * kWarps);  // in turn
    finish_items(place, R::kParts, kTiles, R::kTokens, tile * R::kRows, 0, 1, item, 32 * kWarps, p.out);
  }
}

// kNormEach: fours of the token's norm for each thread; 0: x comes as it is multiplied.
template <class T, int kGroups, int kTiles, int kNormEach>
__global__ void __launch_bounds__(kThreads, 3)
    stream(const __grid_constant__ CUtensorMap weights, const __grid_constant__ StreamParams p) {
#if __CUDA_ARCH__ >= 900
  using R = Ring<kGroups, kTiles>;
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ alignas(8) uint64_t barriers[2 * kMaxStages];
  uint64_t *full = barriers, *empty = barriers + kMaxStages;
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      init_barrier(full + i, 1);
      init_barrier(empty + i, kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x / 32 == kWarps) {
    if (threadIdx.x % 32 == 0) load_stages<R>(p, weights, shared, full, empty);
  } else {
    float* partials = reinterpret_cast<float*>(shared + p.stages * kStageBytes);
    T* normed = reinterpret_cast<T*>(partials + 2 * R::kPartials);
    if constexpr (kNormEach > 0) {
      norm_token<T, kNormEach>(p, normed);
    } else {
      wait_for_previous_kernel();
    }
    multiply_stages<T, kGroups, kTiles, (kNormEach > 0)>(p, shared, partials, normed, full, empty);
  }
#endif
}

constexpr int kAheadOfRing = 6;
constexpr int kNormShort = 4, kNormLong = 8;
constexpr int kMaxNormed = kNormLong * 4 * 32 * kWarps;

int tokens_padded(int64_t m) { return m <= 8 ? 8 : 16; }
int tiles_at_once(int64_t m) { return m <= 2 ? 1 : 2; }

bool can_run(const CudaLinearProblem& p, const CudaLimits& limits) {
  return is_plain(p.format) && p.x == p.format && p.k % 8 == 0 && p.m >= 1 && p.m <= kMaxTokens && has_clusters(limits);
}

// Multiprocessors with fewer rows leave their bandwidth to the others, as long as most are busy. x goes through the
// second-level cache for every block of rows.
double estimate_us(const CudaLinearProblem& p, const CudaLimits& limits) {
  const int64_t blocks = ceil_div(p.n, tiles_at_once(p.m) * kTileRows);
  const double x_us = 0.5 * 2 * static_cast<double>(p.k * p.m * blocks) / (1.3 * limits.bytes_per_us);
  const double uneven = static_cast<double>(round_up(blocks, limits.sms)) / static_cast<double>(blocks);
  return stream_us(p, limits, std::min<int64_t>(blocks, limits.sms), 1, 2.2) * std::min(1.2, 0.8 + 0.2 * uneven) + x_us;
}

bool takes_norm(const CudaLinearProblem& p, const CudaLimits& limits) {
  return can_run(p, limits) && p.m == 1 && p.k <= kMaxNormed;
}

template <class T, int kGroups, int kTiles, int kNormEach>
cudaError_t launch(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                   const CudaStep& step) {
  using R = Ring<kGroups, kTiles>;
  const int normed_bytes = kNormEach > 0 ? static_cast<int>(round_up(p.k, 8)) * 2 : 0;
  const int others = 2 * R::kPartials * 4 + normed_bytes;
  CUtensorMap weights;
  if (!describe(weights, p.format, a.weights, p.n, p.k, packed_linear_stride(p.k), {kBoxColumns, R::kRows, false})) {
    return cudaErrorInvalidValue;
  }
  StreamParams params{};
  params.x = a.x;
  params.x_stride = a.x_stride;
  params.k = static_cast<int>(p.k);
  params.pieces = static_cast<int>(ceil_div(p.k, R::kPiece));
  params.tiles = static_cast<int>(ceil_div(p.n, R::kRows));
  params.stages = std::min(kMaxStages, (kSharedBytes - others) / kStageBytes);
  params.ahead = kAheadOfRing;
  params.norm = a.norm;
  params.epsilon = a.epsilon;
  params.out = linear_output(p, a);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(std::min(params.tiles, limits.sms)));
  shape.threads = kThreads;
  shape.shared_bytes = static_cast<size_t>(params.stages * kStageBytes + others);
  return launch_kernel(stream<T, kGroups, kTiles, kNormEach>, shape, step, weights, params);
}

template <class T>
cudaError_t launch_tokens(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits,
                          const CudaStep& step) {
  if (a.norm != nullptr) {
    if (!takes_norm(p, limits)) return cudaErrorInvalidValue;
    return p.k <= kMaxNormed / 2 ? launch<T, 1, 1, kNormShort>(p, a, limits, step)
                                 : launch<T, 1, 1, kNormLong>(p, a, limits, step);
  }
  if (tokens_padded(p.m) == 16) return launch<T, 2, 2, 0>(p, a, limits, step);
  return tiles_at_once(p.m) == 1 ? launch<T, 1, 1, 0>(p, a, limits, step) : launch<T, 1, 2, 0>(p, a, limits, step);
}

cudaError_t run(const CudaLinearProblem& p, const CudaLinearArgs& a, const CudaLimits& limits, const CudaStep& step) {
  return p.format == DType::BF16 ? launch_tokens<__nv_bfloat16>(p, a, limits, step)
                                 : launch_tokens<__half>(p, a, limits, step);
}

}  // namespace

const CudaLinearKernel& stream_kernel() {
  static constexpr CudaLinearKernel kKernel{"stream", "flat", can_run, estimate_us, run, takes_norm};
  return kKernel;
}

}  // namespace millrace
