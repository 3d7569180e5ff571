// Quantized weights times two to four tokens on Hopper. As gemv.cuh, but the blocks of a cluster share K, so each
// holds only its part of x, which costs most space and time with several tokens. Distributed shared memory adds up
// their sums of a tile.
#pragma once

#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/quantized/few_outputs.cuh"
#include "kernels/linear/cuda/quantized/few_product.cuh"
#include "kernels/linear/cuda/quantized/unit_ring.cuh"

namespace millrace {

inline constexpr int kFewThreads = 32 * kRingWarps;
inline constexpr int kFewMostTiles = 64;  // tiles whose sums a block keeps until its cluster adds them up

// Share of a multiprocessor that a block takes: all of it, for x and the sums of many tiles.
template <int kTokens>
struct FewShare {
  static constexpr int kBound = kFewThreads;  // threads that the register allocation assumes
  static constexpr int kRings = 120 * 1024;
  static constexpr int kAlone = 0;
  static constexpr int room(bool) { return 224 * 1024; }
};

// With two tokens, half of it, as GemvShare<true>: the next kernel fills its rings meanwhile.
template <>
struct FewShare<2> {
  static constexpr int kBound = 1024;
  static constexpr int kRings = 84 * 1024;
  static constexpr int kAlone = 116 * 1024;  // used by layers that add to the residual stream
  static constexpr int room(bool accumulate) { return accumulate ? kAlone : 110 * 1024; }
};

// Tiles whose sums a block keeps for its cluster, and tiles per group for which it keeps each warp's part. All warps of
// the block synchronize to add the parts of a group.
struct FewKept {
  int tiles, group;
};

struct PackedFewParams {
  const uint8_t* weights;
  const void* x;  // bf16
  int64_t x_stride;
  SharedNorm shared;  // one of the halves of a shared norm, or neither
  int k, units;       // units along K
  int splits;         // blocks of a cluster, which share K
  FewKept kept;
  TileShares shares;
  LinearOutput out;
};

// A block's part of K.
struct KPart {
  int first, units, most;  // most: largest part in the cluster
  __device__ __forceinline__ KPart(int all, int rank, int splits)
      : first(all * rank / splits), units(all * (rank + 1) / splits - first), most((all + splits - 1) / splits) {}
};

// Stages x and, if x is half of a norm, the remaining factor. A warp takes every 16th unit, token after token.
template <class X>
__device__ __forceinline__ void place_rows(const PackedFewParams& p, const KPart& part, const X& staged,
                                           float* norm_factors) {
  constexpr int kAhead = 4;
  const int warp = warp_index(), tokens = p.out.m;
  const int first_column = part.first * kUnitColumns + static_cast<int>(threadIdx.x) % 32 * 8;
  UnitPlace<> next(warp, part.units), placed = next;  // the `tile` of a UnitPlace is a token here
  wait_for_previous_kernel();
  bool has_factor = p.shared.squares == nullptr || warp >= tokens;
#pragma unroll 1
  do {
    uint4 rows[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int column = first_column + next.unit * kUnitColumns;
      const auto* from = static_cast<const __nv_bfloat16*>(p.x) + next.tile * p.x_stride + column;
      rows[i] = load_shared_input_if(from, next.tile < tokens && column < p.k);
      next.advance(part.units);
    }
    if (!has_factor) leave_norm_factor(p.shared, warp, norm_factors);  // while x is in flight
    has_factor = true;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      float v[8];
      unpack_eight(rows[i], v);
      staged.put(v, placed.tile, placed.unit, placed.tile < tokens);
      placed.advance(part.units);
    }
  } while (next.tile < tokens);
}

// Adds the parts of `tiles` tiles: [tile][part][token][kTileStride] to [tile][token][kTileStride].
__device__ __forceinline__ void add_parts(const float* partials, int tiles, int parts, int tokens, float* sums) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tiles * tokens * 4; i += kFewThreads) {
    const int row = i / 4, tile = row / tokens, column = i % 4 * 4;
    const float* from = partials + (tile * parts * tokens + row - tile * tokens) * kTileStride + column;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 4
    for (int part = 0; part < parts; ++part) sum = add(sum, four_at(from + part * tokens * kTileStride));
    *reinterpret_cast<float4*>(sums + row * kTileStride + column) = sum;
  }
}

template <DType kFormat, int kTokens, UnitOrder kOrder>
__global__ void __launch_bounds__(FewShare<kTokens>::kBound, 1) packed_few(const __grid_constant__ PackedFewParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this kernel
  using U = Unit<kFormat>;
  using Product = FewProduct<kFormat, kTokens>;
  using Ring = UnitRing<kFormat, FewShare<kTokens>::kRings, kOrder>;
  extern __shared__ __align__(128) uint8_t rings[];
  const int lane = threadIdx.x % 32, tokens = p.out.m;
  const KPart part(p.units, p.splits > 1 ? cluster_rank() : 0, p.splits);
  const int cluster = static_cast<int>(blockIdx.x) / p.splits;
  const int first_tile = p.shares.first(cluster), tiles = p.shares.count(cluster);
  Ring ring(p.weights + (static_cast<int64_t>(first_tile) * p.units + part.first) * U::kSize, part.units, p.units,
            tiles, rings);
  let_next_kernel_start();
  auto* norm_factors = reinterpret_cast<float*>(rings + kRingWarps * Ring::kSlots * U::kSize);
  const auto staged = Product::place_x(reinterpret_cast<uint8_t*>(norm_factors + kFewTokens), tokens, part.most);
  float* sums = staged.end(part.most);
  float* partials = sums + p.kept.tiles * tokens * kTileStride;
  place_rows(p, part, staged, norm_factors);
  __syncthreads();
  const int parts = min(part.units, kRingWarps);
  UnitPlace<kOrder> place(warp_index(), part.units);
  Product product;
#pragma unroll 1
  for (int first = 0; first < tiles; first += p.kept.tiles) {
    const int end = min(first + p.kept.tiles, tiles);
    const FewOutputs outputs(p.out, p.shared.ahead, first_tile + first, end - first, p.splits, kFewThreads);
#pragma unroll 1
    for (int group = first; group < end; group += p.kept.group) {
      const int group_end = min(group + p.kept.group, end);
#pragma unroll 1
      while (place.tile < group_end) {
        product.load(ring.wait(), lane);
        ring.refill();
        product.multiply(staged, place.unit, lane);
        const int at = (place.tile - group) * parts + (place.unit & (kRingWarps - 1));
        if (place.advance(part.units) > 0) product.put(partials + at * tokens * kTileStride, tokens, lane);
      }
      __syncthreads();
      add_parts(partials, group_end - group, parts, tokens, sums + (group - first) * tokens * kTileStride);
      __syncthreads();
    }
    outputs.store(sums, p.shared.squares != nullptr ? norm_factors : nullptr);
    if (end < tiles) __syncthreads();
  }
#endif
}

// Shared memory of a block: rings, x, sums of tiles, and the warps' parts of them. `units`: the largest part of K.
template <DType kFormat, int kTokens>
int few_shared_bytes(int tokens, int units, FewKept kept) {
  using Ring = UnitRing<kFormat, FewShare<kTokens>::kRings>;
  const int parts = min(units, kRingWarps);
  return kRingWarps * Ring::kSlots * Unit<kFormat>::kSize + kFewTokens * 4 +
         FewProduct<kFormat, kTokens>::x_bytes(tokens, units) +
         (kept.tiles + kept.group * parts) * tokens * kTileStride * 4;
}

// As many of a block's `tiles` as fit; group is 0 if none fit.
template <DType kFormat, int kTokens>
FewKept few_kept(int tokens, int units, int tiles, bool accumulate) {
  constexpr int kLeast = 4;  // tiles per group; smaller groups synchronize the warps too often
  const int room = FewShare<kTokens>::room(accumulate), part = min(units, kRingWarps) * tokens * kTileStride * 4;
  for (FewKept kept{min(tiles, kFewMostTiles), 0};; kept.tiles /= 2) {
    const int left = room - few_shared_bytes<kFormat, kTokens>(tokens, units, kept);
    const FewKept with_group{kept.tiles, left < 0 ? 0 : min(kept.tiles, left / part)};
    const bool enough = with_group.group >= min(kept.tiles, kLeast) || (with_group.group > 0 && kept.tiles <= kLeast);
    if (enough || kept.tiles <= 1) return with_group;
  }
}

// As many clusters as run at once with one block per multiprocessor, but not more than tiles.
template <DType kFormat, int kTokens, UnitOrder kOrder>
cudaError_t launch_few_order(PackedFewParams params, const CudaStep& step, int sms) {
  using Share = FewShare<kTokens>;
  constexpr auto kKernel = packed_few<kFormat, kTokens, kOrder>;
  const bool accumulate = params.out.accumulate;
  const int all = (params.out.n + kTileRows - 1) / kTileRows,
            units = (params.units + params.splits - 1) / params.splits;
  LaunchShape shape;
  shape.threads = kFewThreads;
  shape.cluster = params.splits;
  shape.most_shared = true;
  int clusters = sms / params.splits;
  if (params.splits > 1) {
    shape.shared_bytes = static_cast<size_t>(Share::room(true));
    int found = 0;
    const cudaError_t status = clusters_at_once(kKernel, shape, found);
    if (status != cudaSuccess) return status;
    clusters = min(clusters, found);
  }
  clusters = max(1, min(clusters, all));
  params.shares = TileShares::of(all, clusters);
  params.kept = few_kept<kFormat, kTokens>(params.out.m, units, (all + clusters - 1) / clusters, accumulate);
  const int bytes = few_shared_bytes<kFormat, kTokens>(params.out.m, units, params.kept);
  if (params.kept.group == 0) return cudaErrorInvalidValue;
  shape.shared_bytes = static_cast<size_t>(accumulate ? max(bytes, Share::kAlone) : bytes);
  shape.grid = dim3(static_cast<unsigned>(clusters * params.splits));
  return launch_kernel(kKernel, shape, step, params);
}

template <DType kFormat, int kTokens>
cudaError_t launch_few_tokens(const PackedFewParams& params, const CudaStep& step, int sms) {
  const bool even = params.units % params.splits == 0, stays = even && kRingWarps % (params.units / params.splits) == 0;
  return stays ? launch_few_order<kFormat, kTokens, UnitOrder::Stays>(params, step, sms)
               : launch_few_order<kFormat, kTokens, UnitOrder::Any>(params, step, sms);
}

// Number of tokens that the kernel is compiled for, and splits of K. splits = 0: no such kernel.
struct FewWay {
  int tokens, splits;
};

// The smallest number of splits for which x fits, since sums of splits must be added. With more than two tokens, also
// limits the time that a warp needs to stage x.
template <DType kFormat, int kTokens>
int few_splits(int tokens, int units, int tiles, int sms, bool accumulate) {
  constexpr int kMostJobs = kTokens == 2 ? 1 << 30 : 4 * kRingWarps;
  for (int splits = 1; splits <= 8 && splits <= units; splits *= 2) {
    const int each = (units + splits - 1) / splits, clusters = max(1, min(tiles, sms / splits));
    const FewKept kept = few_kept<kFormat, kTokens>(tokens, each, (tiles + clusters - 1) / clusters, accumulate);
    if (kept.group > 0 && (tokens * each <= kMostJobs || 2 * splits > min(8, units))) return splits;
  }
  return 0;
}

// Formats with digits: two or four tokens. Others: up to kFewTokens.
template <DType kFormat>
FewWay few_way(int tokens, int units, int tiles, int sms, bool accumulate) {
  if constexpr (kHasDigits<kFormat>) {
    return tokens == 2 ? FewWay{2, few_splits<kFormat, 2>(tokens, units, tiles, sms, accumulate)}
                       : FewWay{4, few_splits<kFormat, 4>(tokens, units, tiles, sms, accumulate)};
  } else {
    return {kFewTokens, few_splits<kFormat, kFewTokens>(tokens, units, tiles, sms, accumulate)};
  }
}

template <DType kFormat>
cudaError_t launch_few(const PackedFewParams& params, const CudaStep& step, int sms, int tokens) {
  if constexpr (kHasDigits<kFormat>) {
    return tokens == 2 ? launch_few_tokens<kFormat, 2>(params, step, sms)
                       : launch_few_tokens<kFormat, 4>(params, step, sms);
  } else {
    return launch_few_tokens<kFormat, kFewTokens>(params, step, sms);
  }
}

}  // namespace millrace

// KIND is `extern` in files that only launch.
#define MILLRACE_FEW_INSTANCE(KIND, F) \
  KIND template cudaError_t launch_few<DType::F>(const PackedFewParams&, const CudaStep&, int, int);
