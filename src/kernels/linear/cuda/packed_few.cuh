// Quantized weights times two to eight tokens on Hopper, one in each column of the tensor cores. As packed_gemv.cuh,
// but that the blocks of a cluster share K: each then holds only its part of x, which for eight tokens is what takes
// room and time. Their sums of a tile are added up through distributed shared memory.
#pragma once

#include <iterator>

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/families.h"
#include "kernels/linear/cuda/launch_kernel.h"
#include "kernels/linear/cuda/packed_multiply.cuh"
#include "kernels/linear/cuda/unit_ring.cuh"

namespace millrace {

inline constexpr int kFewTokens = 8;
inline constexpr int kFewThreads = 32 * kRingWarps;
inline constexpr int kFewRoom = 224 * 1024;   // bytes of shared memory for a block
inline constexpr int kFewRings = 120 * 1024;  // of which for its rings
inline constexpr int kFewNormEach = 4;        // units of tokens for each warp, where a norm comes first
inline constexpr int kFewTileFloats = kFewTokens * kTileStride;

// What a block keeps before it adds up, since all of its warps meet to do so: tiles whose sums the cluster adds up, and
// warps' parts of tiles that the block does.
struct FewKept {
  int tiles, parts;
};
inline constexpr FewKept kFewKept[] = {{64, 64}, {32, 64}, {16, 32}};  // as much of it as there is room for

struct PackedFewParams {
  const uint8_t* weights;
  const void* x;  // bf16; f32 where there is a norm
  int64_t x_stride;
  const float* norm;  // [k] or null: the RMS norm of each row of x is what is multiplied
  float epsilon;
  int k, units;  // units along K
  int splits;    // blocks of a cluster, which share them
  FewKept kept;
  TileShares shares;
  LinearOutput out;
};

// The part of K that a block has.
struct KPart {
  int first, units, most;  // most: of any block of the cluster
  __device__ __forceinline__ KPart(int all, int rank, int splits)
      : first(all * rank / splits), units(all * (rank + 1) / splits - first), most((all + splits - 1) / splits) {}
};

// A warp takes units of tokens in turn: every sixteenth, token after token.
struct TokenUnit {
  int token, unit, column;
  bool live;
  __device__ __forceinline__ TokenUnit(int job, const KPart& part, int tokens)
      : token(job / part.units),
        unit(job % part.units),
        column((part.first + unit) * kUnitColumns + static_cast<int>(threadIdx.x) % 32 * 8),
        live(token < tokens) {}
};

template <DType kFormat>
__device__ __forceinline__ void place_rows(const PackedFewParams& p, const KPart& part,
                                           const UnitX<kFormat, kFewTokens>& staged) {
  constexpr int kAhead = 4;
  const int warp = warp_index(), jobs = part.units * p.out.m;
  wait_for_previous_kernel();
#pragma unroll 1
  for (int first = warp; first < jobs; first += kAhead * kRingWarps) {
    uint4 rows[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const TokenUnit at(first + i * kRingWarps, part, p.out.m);
      const auto* from = static_cast<const __nv_bfloat16*>(p.x) + at.token * p.x_stride + at.column;
      rows[i] = at.live && at.column < p.k ? load_shared_input(from) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const TokenUnit at(first + i * kRingWarps, part, p.out.m);
      float v[8];
      unpack_eight(rows[i], v);
      staged.put(v, at.token, at.unit, at.live);
    }
  }
}

// Sums of squares of the units of this block's part of K, [token][units rounded up to four].
struct SquareSums {
  float* at;
  int stride;

  static __host__ __device__ int floats(int most_units) { return kFewTokens * ((most_units + 3) / 4 * 4); }
  __device__ SquareSums(float* shared, int most_units) : at(shared), stride((most_units + 3) / 4 * 4) {}

  // Entries without a unit; others are put by whoever has the unit.
  __device__ __forceinline__ void clear(int units) const {
    for (int i = static_cast<int>(threadIdx.x); i < kFewTokens * stride; i += kFewThreads) {
      if (i % stride >= units) at[i] = 0;
    }
  }
  // A warp adds up those of all blocks.
  __device__ __forceinline__ float total(int token, int splits) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, fours = stride / 4;
    float sum = 0;
    for (int i = lane; i < splits * fours; i += 32) {
      const float* from = at + token * stride + i % fours * 4;
      const float4 v = splits > 1 ? load_cluster(from, i / fours) : *reinterpret_cast<const float4*>(from);
      sum += v.x + v.y + v.z + v.w;
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    return sum;
  }
};

template <DType kFormat>
__device__ __forceinline__ void place_normed_rows(const PackedFewParams& p, const KPart& part,
                                                  const UnitX<kFormat, kFewTokens>& staged, const SquareSums& squares) {
  const int warp = warp_index(), lane = threadIdx.x % 32;
  squares.clear(part.units);
  wait_for_previous_kernel();
  EightFloats x[kFewNormEach];
#pragma unroll
  for (int e = 0; e < kFewNormEach; ++e) {
    const TokenUnit at(warp + e * kRingWarps, part, p.out.m);
    const float* from = static_cast<const float*>(p.x) + at.token * p.x_stride + at.column;
    x[e] = at.live && at.column < p.k ? EightFloats::load(from) : EightFloats{};
  }
#pragma unroll
  for (int e = 0; e < kFewNormEach; ++e) {
    const TokenUnit at(warp + e * kRingWarps, part, p.out.m);
    float sum = x[e].squares();
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (at.live && lane == 0) squares.at[at.token * squares.stride + at.unit] = sum;
  }
  if (p.splits > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
#pragma unroll
  for (int e = 0; e < kFewNormEach; ++e) {
    const TokenUnit at(warp + e * kRingWarps, part, p.out.m);
    const float mean = squares.total(min(at.token, p.out.m - 1), p.splits) / static_cast<float>(p.k);
    const EightFloats weights = at.live && at.column < p.k ? EightFloats::load(p.norm + at.column) : EightFloats{};
    float v[8];
    x[e].scaled(weights, rsqrtf(mean + p.epsilon), v);
    staged.put(v, at.token, at.unit, at.live);
  }
}

// Adds up the parts of `tiles` tiles: [tile][part][token][kTileStride] to [tile][token][kTileStride].
__device__ __forceinline__ void add_parts(const float* partials, int tiles, int parts, float* sums) {
  constexpr int kFours = kFewTileFloats / 4;
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kFours; i += kFewThreads) {
    const float* from = partials + i / kFours * parts * kFewTileFloats + i % kFours * 4;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 4
    for (int part = 0; part < parts; ++part) {
      sum = add(sum, *reinterpret_cast<const float4*>(from + part * kFewTileFloats));
    }
    *reinterpret_cast<float4*>(sums + i / kFours * kFewTileFloats + i % kFours * 4) = sum;
  }
}

template <DType kFormat, bool kNormed>
__global__ void __launch_bounds__(kFewThreads, 1) packed_few(const __grid_constant__ PackedFewParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build never launch this
  using U = Unit<kFormat>;
  extern __shared__ __align__(128) uint8_t rings[];
  const int warp = warp_index(), lane = threadIdx.x % 32, t = lane % 4;
  const KPart part(p.units, p.splits > 1 ? cluster_rank() : 0, p.splits);
  const int cluster = static_cast<int>(blockIdx.x) / p.splits;
  const int first_tile = p.shares.first(cluster), tiles = p.shares.count(cluster);
  using Ring = UnitRing<kFormat, kFewRings>;
  Ring ring(p.weights + (static_cast<int64_t>(first_tile) * p.units + part.first) * U::kSize, part.units, p.units,
            tiles, rings);
  const UnitX<kFormat, kFewTokens> staged(rings + kRingWarps * Ring::kSlots * U::kSize, p.out.m, part.most);
  float* sums = staged.factors + part.most * kFewTokens;
  float* partials = sums + min(tiles, p.kept.tiles) * kFewTileFloats;
  UnitPlace place(warp, part.units);
  if constexpr (kNormed) {
    place_normed_rows<kFormat>(p, part, staged, SquareSums(partials, part.most));
    if (p.splits > 1) cluster_meet();  // others have read the sums that lie where partial sums will
  } else {
    place_rows<kFormat>(p, part, staged);
  }
  __syncthreads();
  let_next_kernel_start();
  // Tokens that are not there repeat the last one: nobody looks at their sums.
  const uint8_t* x = staged.x + min(lane / 4, p.out.m - 1) * staged.stride + t * 16;
  const int parts = min(part.units, kRingWarps), group_tiles = max(1, p.kept.parts / parts);
  float total[4] = {0, 0, 0, 0};
#pragma unroll 1
  for (int first = 0; first < tiles; first += p.kept.tiles) {
    const int end = min(first + p.kept.tiles, tiles);
#pragma unroll 1
    for (int group = first; group < end; group += group_tiles) {
      const int group_end = min(group + group_tiles, end);
#pragma unroll 1
      while (place.tile < group_end) {
        const uint8_t* from = ring.wait();
        UnitFragment<kFormat> unit;
        RunScales<kFormat> scales;
        unit.load_bits(from, lane);
        scales.load(from, lane);
        ring.refill();
        float products[4] = {0, 0, 0, 0};
        multiply_unit<kFormat>(unit, scales, x + place.unit * staged.kUnitBytes,
                               staged.starts + place.unit * U::kRuns * kFewTokens,
                               staged.plain + place.unit * U::kRuns * kFewTokens, lane, products);
        const float2 factors = *reinterpret_cast<const float2*>(staged.factors + place.unit * kFewTokens + 2 * t);
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i] = fmaf(i % 2 == 0 ? factors.x : factors.y, products[i], total[i]);
        const int at = (place.tile - group) * parts + (place.unit & (kRingWarps - 1));
        if (place.advance(part.units) == 0) continue;
        put_fragment(partials + at * kFewTileFloats, 0, total);
#pragma unroll
        for (float& sum : total) sum = 0;
      }
      __syncthreads();
      add_parts(partials, group_end - group, parts, sums + (group - first) * kFewTileFloats);
      __syncthreads();
    }
    finish_tiles(sums, 1, end - first, kFewTokens, (first_tile + first) * kTileRows, 0, p.splits, kFewThreads, p.out);
  }
#endif
}

// Shared memory of a block: rings, x, sums of tiles, and partial sums, where squares lie before. `units`: the most that
// a block has of K.
template <DType kFormat>
int few_shared_bytes(int tokens, int units, FewKept kept) {
  const int parts = max(kept.parts, min(units, kRingWarps)) * kFewTileFloats;
  return kRingWarps * UnitRing<kFormat, kFewRings>::kSlots * Unit<kFormat>::kSize +
         UnitX<kFormat, kFewTokens>::bytes(tokens, units) +
         (kept.tiles * kFewTileFloats + max(parts, SquareSums::floats(units))) * 4;
}

// The most for which there is room, or the least there is.
template <DType kFormat>
FewKept few_kept(int tokens, int units) {
  for (const FewKept kept : kFewKept) {
    if (few_shared_bytes<kFormat>(tokens, units, kept) <= kFewRoom) return kept;
  }
  return kFewKept[std::size(kFewKept) - 1];
}

// As many clusters as run at once, and no more than there are tiles.
template <DType kFormat, bool kNormed>
cudaError_t launch_few_normed(PackedFewParams params, const CudaStep& step, int sms) {
  const int all = (params.out.n + kTileRows - 1) / kTileRows,
            units = (params.units + params.splits - 1) / params.splits;
  LaunchShape shape;
  shape.threads = kFewThreads;
  shape.cluster = params.splits;
  shape.most_shared = true;
  params.kept = few_kept<kFormat>(params.out.m, units);
  shape.shared_bytes = static_cast<size_t>(few_shared_bytes<kFormat>(params.out.m, units, params.kept));
  int clusters = sms / params.splits;
  if (params.splits > 1) {
    const cudaError_t found = clusters_at_once(packed_few<kFormat, kNormed>, shape, clusters);
    if (found != cudaSuccess) return found;
  }
  clusters = max(1, min(clusters, all));
  params.shares = TileShares::of(all, clusters);
  shape.grid = dim3(static_cast<unsigned>(clusters * params.splits));
  return launch_kernel(packed_few<kFormat, kNormed>, shape, step, params);
}

template <DType kFormat>
cudaError_t launch_few(const PackedFewParams& params, const CudaStep& step, int sms) {
  return params.norm != nullptr ? launch_few_normed<kFormat, true>(params, step, sms)
                                : launch_few_normed<kFormat, false>(params, step, sms);
}

}  // namespace millrace
