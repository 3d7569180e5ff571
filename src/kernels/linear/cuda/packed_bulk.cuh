// Flat GEMM over quantized weights on Hopper: the products of packed_mma.cuh, fed by bulk copies.
//
// Blocks stay and take tiles of 16 rows in turn. The units of a tile lie in one piece in memory; a loader warp copies
// eight of them at a time, one for each of the other warps, into a ring in shared memory that runs ahead over the
// borders of tiles. That keeps enough bytes under way without a register spent on it.
#pragma once

#include "kernels/linear/cuda/barrier.cuh"
#include "kernels/linear/cuda/packed_mma.cuh"

namespace millrace {

inline constexpr int kBulkThreads = kPackedThreads + 32;
inline constexpr int kBulkMaxSlots = 12;

struct BulkParams {
  PackedParams packed;
  int slots;  // of the ring
};

// Barrier 1: the warps that multiply, without the loader.
__device__ __forceinline__ void meet_multipliers() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

template <DType kFormat>
struct Ring {
  static constexpr int kSlotBytes = kPackedWarps * Unit<kFormat>::kSize;
  uint8_t* slots;
  uint64_t *full, *empty;
  int count;
  int at = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ uint8_t* slot() const { return slots + at * kSlotBytes; }
  __device__ __forceinline__ void advance() {
    if (++at == count) {
      at = 0;
      parity ^= 1;
    }
  }
};

// The first round through the ring finds it empty; weights do not depend on the kernel before this one.
template <DType kFormat>
__device__ __forceinline__ void fill_ring(Ring<kFormat> ring, const BulkParams& p, int tiles) {
  constexpr int kSize = Unit<kFormat>::kSize;
  const int units = p.packed.units;
  int used = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint8_t* from = p.packed.weights + static_cast<int64_t>(tile) * units * kSize;
    for (int unit = 0; unit < units; unit += kPackedWarps) {
      const uint32_t bytes = static_cast<uint32_t>(min(kPackedWarps, units - unit) * kSize);
      if (used >= ring.count) wait_barrier(ring.empty + ring.at, ring.parity ^ 1);
      arrive_expecting(ring.full + ring.at, bytes);
      copy_bulk(ring.slot(), from + static_cast<int64_t>(unit) * kSize, bytes, ring.full + ring.at);
      ring.advance();
      ++used;
    }
  }
}

template <DType kFormat, int kGroups>
__device__ __forceinline__ void multiply_tiles(Ring<kFormat> ring, const PackedParams& p,
                                               const StagedX<kFormat, kGroups>& staged, float* partials, int tiles) {
  using U = Unit<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const __nv_bfloat16* x[kGroups];  // tokens that are not there repeat the last one: nobody looks at their sums
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    x[group] = staged.x + min(group * 8 + lane / 4, p.out.m - 1) * staged.stride + U::column(lane % 4, 0);
  }
  const float* starts = staged.sums + lane % 4 * 4;
  int turn = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++turn) {
    float sums[kGroups][4] = {};
#pragma unroll 1
    for (int first = 0; first < p.units; first += kPackedWarps) {
      const int unit_index = first + warp;
      wait_barrier(ring.full + ring.at, ring.parity);
      UnitFragment<kFormat> unit;
      if (unit_index < p.units) unit.load_shared(ring.slot() + warp * U::kSize, lane);
      __syncwarp();
      if (lane == 0) arrive(ring.empty + ring.at);
      ring.advance();
      if (unit_index < p.units) {
        const __nv_bfloat16* here[kGroups];
#pragma unroll
        for (int group = 0; group < kGroups; ++group) here[group] = x[group] + unit_index * kUnitColumns;
        const float* sums_here = starts + unit_index * 8 * staged.kBlockSums;
#pragma unroll
        for (int block = 0; block < 8; ++block) {
          multiply_block<kFormat, kGroups>(unit, block, here, sums_here, sums);
        }
      }
    }
    // Partial sums in turn in two places: one meeting per tile is enough. Warps take turns in adding up.
    float* place = partials + turn % 2 * kPackedWarps * 8 * kGroups * kTileStride;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      put_fragment(place + warp * 8 * kGroups * kTileStride, group * 8, sums[group]);
    }
    meet_multipliers();
    const int item = (static_cast<int>(threadIdx.x) + kPackedThreads - turn % kPackedWarps * 32) % kPackedThreads;
    finish_items(place, kPackedWarps, 1, 8 * kGroups, tile * kTileRows, 0, 1, item, kPackedThreads, p.out);
  }
}

template <DType kFormat, int kGroups>
__global__ void __launch_bounds__(kBulkThreads, kGroups == 1 ? 2 : 1)
    packed_bulk(const __grid_constant__ BulkParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets of the same build have no such instructions, and never launch this
  extern __shared__ __align__(16) uint8_t shared[];
  __shared__ alignas(8) uint64_t barriers[2 * kBulkMaxSlots];
  const int tiles = (p.packed.out.n + kTileRows - 1) / kTileRows;
  float* partials = reinterpret_cast<float*>(shared + p.slots * Ring<kFormat>::kSlotBytes);
  uint8_t* x_place = reinterpret_cast<uint8_t*>(partials + 2 * kPackedWarps * 8 * kGroups * kTileStride);
  Ring<kFormat> ring{shared, barriers, barriers + kBulkMaxSlots, p.slots};
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.slots; ++i) {
      init_barrier(ring.full + i, 1);
      init_barrier(ring.empty + i, kPackedWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= kPackedThreads) {
    if (threadIdx.x % 32 == 0) fill_ring(ring, p, tiles);
    wait_for_previous_kernel();
  } else {
    wait_for_previous_kernel();
    StagedX<kFormat, kGroups> staged(x_place, p.packed.out.m, p.packed.units);
    staged.fill(p.packed, 0, p.packed.out.m, 0, p.packed.units);
    meet_multipliers();
    multiply_tiles<kFormat, kGroups>(ring, p.packed, staged, partials, tiles);
  }
#endif
}

// Shared memory beside the ring.
template <DType kFormat, int kGroups>
int bulk_fixed_bytes(const PackedParams& p) {
  return 2 * kPackedWarps * 8 * kGroups * kTileStride * 4 + StagedX<kFormat, kGroups>::bytes(p.out.m, p.units);
}

// `room`: bytes of shared memory that a block may take. Refused when not even two slots fit.
template <DType kFormat>
cudaError_t launch_bulk(BulkParams params, LaunchShape shape, const CudaStep& step, int groups, int room) {
  const int fixed =
      groups == 1 ? bulk_fixed_bytes<kFormat, 1>(params.packed) : bulk_fixed_bytes<kFormat, 2>(params.packed);
  params.slots = min(kBulkMaxSlots, (room - fixed) / Ring<kFormat>::kSlotBytes);
  if (params.slots < 2) return cudaErrorInvalidValue;
  shape.shared_bytes = static_cast<size_t>(fixed + params.slots * Ring<kFormat>::kSlotBytes);
  return groups == 1 ? launch_kernel(packed_bulk<kFormat, 1>, shape, step, params)
                     : launch_kernel(packed_bulk<kFormat, 2>, shape, step, params);
}

}  // namespace millrace
