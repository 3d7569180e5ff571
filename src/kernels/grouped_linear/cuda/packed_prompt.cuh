// Quantized weights of prompts on Hopper (prompt.cuh): units are copied as they are, and the warps that multiply decode
// and scale them in registers, which are the first operand of their products.
#pragma once

#include "kernels/grouped_linear/cuda/prompt_block.cuh"
#include "kernels/grouped_linear/cuda/unit_tile.cuh"
#include "kernels/linear/cuda/quantized/scaled_fragments.cuh"
#include "kernels/linear/cuda/quantized/wgmma_registers.cuh"

namespace millrace {

inline constexpr int kPromptUnits = kPromptRows / kUnitRows;  // of 256 columns

template <DType kFormat>
struct PackedPromptShape {
  static constexpr int kUnitBytes = kPromptUnits * Unit<kFormat>::kSize, kRoom = 221 * 1024;
  static constexpr int fixed(int x_slots) { return 1024 + x_slots * kPromptXBytes + kPromptOutputBytes; }
  static constexpr int kXSlots = fixed(5) + 2 * kUnitBytes <= kRoom ? 5 : 3;
  static constexpr int kUnitSlots = fixed(kXSlots) + 3 * kUnitBytes <= kRoom ? 3 : 2;
  static constexpr size_t kSharedBytes = fixed(kXSlots) + kUnitSlots * kUnitBytes;
  static_assert(kSharedBytes <= kRoom);
  using Xs = PromptRing<kXSlots, kPromptXBytes>;
  using Units = PromptRing<kUnitSlots, kUnitBytes>;
};

template <DType kFormat, class S>
__device__ __forceinline__ void feed_packed(const GroupedParams& p, const PromptItem& item, int count,
                                            typename S::Xs& xs, typename S::Units& units) {
  constexpr int kSize = Unit<kFormat>::kSize;
  const int thread = static_cast<int>(threadIdx.x), tile = unit_tile<kPromptUnits>(p, item.rows, thread % kPromptUnits);
  const PairCopies<__nv_bfloat16> pairs(p, item);
  const auto* from =
      reinterpret_cast<const uint8_t*>(p.matrix(item.group)) + static_cast<int64_t>(tile) * count * kSize;
#pragma unroll 1
  for (int step = 0; step < 4 * count; ++step) {
    if (step % 4 == 0 && thread < 32) {
      units.wait_done();
      uint64_t* full = units.full + units.slot;
      if (thread == 0) arrive_expecting(full, S::kUnitBytes);
      __syncwarp();
      if (thread < kPromptUnits) copy_bulk(units.own() + thread * kSize, from, kSize, full, evict_normal_policy());
      from += kSize;
      units.advance();
    }
    xs.wait_done();
    pairs.start(xs.own(), step, xs.full + xs.slot);
    xs.advance();
  }
}

// One tile's products run while the other tile's weights are decoded.
template <DType kFormat, class S, int kPairs>
__device__ __forceinline__ void multiply_packed(typename S::Xs& xs, typename S::Units& units, int count, int warp,
                                                PromptSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RaisedScales<kFormat> scales[2];
  uint32_t a[2][4][4];
  const auto begin_unit = [&] {
    units.wait_full();
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      scales[tile].load(units.own() + (warp + kPromptWarps * tile) * Unit<kFormat>::kSize, lane);
    }
  };
  const auto decode = [&](int tile, int quarter) {
    QuarterBits<kFormat> bits;
    bits.load(units.own() + (warp + kPromptWarps * tile) * Unit<kFormat>::kSize, lane, quarter);
    scale_quarter<kFormat>(bits, scales[tile], quarter, lane, a[tile]);
  };
  const auto multiply = [&](int tile, uint64_t b) {
    begin_products();
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      RegisterProduct<kPairs>::run(first_sums<kPairs>(sums[tile]), a[tile][part], b + 2 * part);
    }
    commit_products();
  };
  begin_unit();
  decode(0, 0);
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    uint64_t* previous = nullptr;
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      xs.wait_full();
      publish_tile();  // x was written by ordinary copies
      const uint64_t b = matrix_descriptor(xs.own());
      multiply(0, b);
      if (quarter > 0) {
        wait_products<1>();
        if (lane == 0) arrive(previous);
      }
      decode(1, quarter);
      multiply(1, b);
      wait_products<1>();
      if (quarter < 3) decode(0, quarter + 1);
      previous = xs.done + xs.slot;
      xs.advance();
    }
    __syncwarp();
    if (lane == 0) arrive(units.done + units.slot);
    units.advance();
    if (i + 1 < count) {
      begin_unit();
      decode(0, 0);
    }
    wait_products<0>();  // the compiler serializes products that are in flight across the end of the loop
    if (lane == 0) arrive(previous);
  }
}

template <DType kFormat>
__global__ void __launch_bounds__(kPromptThreads, 1) multiply_packed_prompt(const __grid_constant__ PromptParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  using S = PackedPromptShape<kFormat>;
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t of_xs[2 * S::kXSlots], of_units[2 * S::kUnitSlots];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  typename S::Xs xs{aligned, of_xs, of_xs + S::kXSlots};
  typename S::Units units{aligned + S::kXSlots * kPromptXBytes, of_units, of_units + S::kUnitSlots};
  const int count = (f.p.k + kUnitColumns - 1) / kUnitColumns;
  run_prompt_block(
      f, units.data + S::kUnitSlots * S::kUnitBytes, kRaisedSumFactor<kFormat>,
      [&] {
        xs.init(kPromptFeeders);
        units.init(1);
      },
      [&](const PromptItem& item) { feed_packed<kFormat, S>(f.p, item, count, xs, units); },
      [&](auto pairs, int warp, PromptSums& sums) {
        multiply_packed<kFormat, S, pairs.value>(xs, units, count, warp, sums);
      });
#endif
}

template <DType kFormat>
cudaError_t launch_packed_prompt(const PromptParams& params, LaunchShape shape, const CudaStep& step) {
  shape.shared_bytes = PackedPromptShape<kFormat>::kSharedBytes;
  return launch_kernel(multiply_packed_prompt<kFormat>, shape, step, params);
}

// packed_prompt_*.cu instantiate the formats, so that they compile in parallel.
#define MILLRACE_PACKED_PROMPT(PREFIX, F) \
  PREFIX template cudaError_t launch_packed_prompt<DType::F>(const PromptParams&, LaunchShape, const CudaStep&);

}  // namespace millrace
