// 16-bit weights of prompts on Hopper (prompt.cuh): the copy engine brings weights, the feeding threads gather x.
#include "kernels/grouped_linear/cuda/prompt_block.cuh"
#include "kernels/grouped_linear/cuda/prompt_kernel.h"
#include "kernels/linear/cuda/tensor_map.h"

namespace millrace {
namespace {

constexpr int kSlots = 4, kWeightBytes = kPromptRows * kTileRowBytes;
using Ring = PromptRing<kSlots, kWeightBytes + kPromptXBytes>;
constexpr size_t kSharedBytes = 1024 + size_t{kSlots} * Ring::kBytes + kPromptOutputBytes;

// Copies 64 columns of the item's rows: two boxes of 128 rows.
__device__ __forceinline__ void copy_weights(const CUtensorMap& map, const GroupedParams& p, const PromptItem& item,
                                             int step, uint8_t* to, uint64_t* full) {
  const bool gated = p.half > 0;
  const int first = item.rows * (gated ? kPromptRows / 2 : kPromptRows), apart = gated ? p.half : kPromptRows / 2;
  arrive_expecting(full, kWeightBytes);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    copy_box(to + i * kWeightBytes / 2, map, step * kTileColumns, first + i * apart, item.group, full);
  }
}

template <class T>
__device__ __forceinline__ void feed(const CUtensorMap& map, const GroupedParams& p, const PromptItem& item, int steps,
                                     Ring& ring) {
  const PairCopies<T> pairs(p, item);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    ring.wait_done();
    uint64_t* full = ring.full + ring.slot;
    if (threadIdx.x == 0) copy_weights(map, p, item, step, ring.own(), full);
    pairs.start(ring.own() + kWeightBytes, step, full);
    ring.advance();
  }
}

template <class T, int kPairs>
__device__ __forceinline__ void multiply(Ring& ring, int steps, PromptSums& sums) {
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, lane = static_cast<int>(threadIdx.x) % 32;
  uint64_t* previous = nullptr;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    ring.wait_full();
    publish_tile();  // x was written by ordinary copies
    const uint64_t a = matrix_descriptor(ring.own() + group * 64 * kTileRowBytes);
    const uint64_t b = matrix_descriptor(ring.own() + kWeightBytes);
    begin_products();
#pragma unroll
    for (int part = 0; part < kTileColumns / 16; ++part) {  // descriptors count units of 16 bytes
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        WarpgroupProduct<T, kPairs>::run(first_sums<kPairs>(sums[tile]), a + tile * (kWeightBytes / 2 / 16) + 2 * part,
                                         b + 2 * part, 1);
      }
    }
    commit_products();
    wait_products<1>();
    if (step > 0 && lane == 0) arrive(previous);
    previous = ring.done + ring.slot;
    ring.advance();
  }
  wait_products<0>();
  if (lane == 0) arrive(previous);
}

template <class T>
__global__ void __launch_bounds__(kPromptThreads, 1)
    multiply_prompt(const __grid_constant__ CUtensorMap weights, const __grid_constant__ PromptParams f) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets lack these instructions and never launch this kernel
  extern __shared__ uint8_t raw[];
  __shared__ alignas(8) uint64_t barriers[2 * kSlots];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  Ring ring{aligned, barriers, barriers + kSlots};
  const int steps = (f.p.k + kTileColumns - 1) / kTileColumns;
  run_prompt_block(
      f, aligned + kSlots * Ring::kBytes, 1,
      [&] { ring.init(1 + kPromptFeeders); },  // the bytes of weights, and each thread's copies of x
      [&](const PromptItem& item) { feed<T>(weights, f.p, item, steps, ring); },
      [&](auto pairs, int, PromptSums& sums) { multiply<T, pairs.value>(ring, steps, sums); });
#endif
}

class PlainPrompt final : public PromptKernel {
 public:
  std::string_view name() const override { return "cuda_prompt"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return suits(p, hardware) && is_plain_grouped(p) && p.k % 8 == 0;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return tiles_us(p, hardware, {kPromptPairs, 0.68, 0.8}, 2.0 * double(p.k), double(product_bytes(p)));
  }

 private:
  cudaError_t launch(const GroupedWeights& w, const PromptParams& params, LaunchShape shape,
                     const CudaStep& step) const override {
    const MatrixStack stack{w.data.front(), w.groups, w.n, w.k, packed_linear_stride(w.k), w.stride};
    CUtensorMap map;
    if (!describe(map, w.format, stack, {kTileColumns, kPromptRows / 2, true})) return cudaErrorInvalidValue;
    shape.shared_bytes = kSharedBytes;
    return w.format == DType::BF16 ? launch_kernel(multiply_prompt<__nv_bfloat16>, shape, step, map, params)
                                   : launch_kernel(multiply_prompt<__half>, shape, step, map, params);
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_prompt() {
  static const PlainPrompt kernel;
  return &kernel;
}

}  // namespace millrace
