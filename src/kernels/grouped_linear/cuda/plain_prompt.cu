// 16-bit weights of prompts on Hopper (prompt.cuh): the copy engine brings weights, the feeding threads gather x.
#include "hardware/cuda/check.h"
#include "kernels/grouped_linear/cuda/kernels.h"
#include "kernels/grouped_linear/cuda/prompt_outputs.cuh"
#include "kernels/grouped_linear/cuda/sum_pairs.h"
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
__device__ __forceinline__ void feed(const CUtensorMap& map, const PromptParams& f, const int32_t* offsets,
                                     PromptItems items, Ring ring) {
  const GroupedParams& p = f.p;
  const int steps = (p.k + kTileColumns - 1) / kTileColumns;
  items.feed(f, offsets, [&](const PromptItem& item) {
    const PairCopies<T> pairs(p, item);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ring.wait_done();
      uint64_t* full = ring.full + ring.slot;
      if (threadIdx.x == 0) copy_weights(map, p, item, step, ring.own(), full);
      pairs.start(ring.own() + kWeightBytes, step, full);
      ring.advance();
    }
  });
  wait_copies<0>();
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
  __shared__ alignas(8) uint64_t barriers[2 * kSlots], of_items[2 * kPromptItems];
  __shared__ PromptItem own_items[kPromptItems];
  __shared__ int32_t offsets[kPromptMostGroups + 1];
  uint8_t* aligned = raw + (1024 - shared_address(raw) % 1024) % 1024;
  Ring ring{aligned, barriers, barriers + kSlots};
  PromptItems items{{reinterpret_cast<uint8_t*>(own_items), of_items, of_items + kPromptItems}};
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    ring.init(1 + kPromptFeeders);  // the bytes of weights, and each thread's copies of x
    items.ring.init(kPromptFeeders);
    publish_barriers();
  }
  wait_for_previous_kernel();
  for (int i = static_cast<int>(threadIdx.x); i <= f.p.groups; i += kPromptThreads) offsets[i] = f.p.offsets[i];
  __syncthreads();
  if (threadIdx.x < kPromptFeeders) {
    release_registers();
    feed<T>(weights, f, offsets, items, ring);
  } else {
    take_registers();
    const int warp = static_cast<int>(threadIdx.x) / 32 - kPromptFeeders / 32;
    const PromptOutputs outputs(f.p, reinterpret_cast<float*>(aligned + kSlots * Ring::kBytes), warp);
    const int steps = (f.p.k + kTileColumns - 1) / kTileColumns;
    items.take([&](const PromptItem& item) {
      PromptSums sums;
#pragma unroll
      for (int i = 0; i < kPromptPairs; ++i) sums[i % 2][i / 2] = 0;
      if (item.count <= kPromptPairs / 2) {
        multiply<T, kPromptPairs / 2>(ring, steps, sums);
      } else {
        multiply<T, kPromptPairs>(ring, steps, sums);
      }
      outputs.store(item, sums, 1);
    });
  }
#endif
}

class PlainPrompt final : public Kernel<GroupedLinearOp> {
 public:
  std::string_view name() const override { return "cuda_prompt"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return is_gpu(hardware) && hardware.architecture == 90 && is_plain_grouped(p) && p.k % 8 == 0 &&
           p.groups <= kPromptMostGroups;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return tiles_us(p, hardware, {kPromptPairs, 0.68, 0.8}, 2.0 * double(p.k), double(product_bytes(p)));
  }
  size_t workspace_bytes(const Problem& p, const Hardware&) const override { return products_workspace(p); }

  void run(const Args& a, const Executor& executor) const override {
    PromptParams params{grouped_params(a), 0};
    if (params.p.pairs == 0) return;
    const CudaStep step{static_cast<cudaStream_t>(executor.queue), executor.overlap};
    const Matrix products = products_of(a, executor.workspace);
    if (a.sum) params.p.y = products;
    params.row_blocks = prompt_row_blocks(params.p);
    CUtensorMap weights;
    const MatrixStack stack{
        a.weights->data.front(), a.weights->groups, a.weights->n, a.weights->k, packed_linear_stride(a.weights->k),
        a.weights->stride};
    if (!describe(weights, a.weights->format, stack, {kTileColumns, kPromptRows / 2, true})) {
      check_cuda(cudaErrorInvalidValue, "describing experts");
    }
    LaunchShape shape;
    shape.grid = dim3(static_cast<unsigned>(prompt_blocks(params, *executor.hardware)));
    shape.threads = kPromptThreads;
    shape.shared_bytes = kSharedBytes;
    shape.most_shared = true;
    check_cuda(a.weights->format == DType::BF16
                   ? launch_kernel(multiply_prompt<__nv_bfloat16>, shape, step, weights, params)
                   : launch_kernel(multiply_prompt<__half>, shape, step, weights, params),
               "starting a grouped linear layer");
    if (a.sum) check_cuda(add_pairs(products, a.routing, a.y, step), "adding up experts");
  }
};

}  // namespace

const Kernel<GroupedLinearOp>* cuda_grouped_prompt() {
  static const PlainPrompt kernel;
  return &kernel;
}

}  // namespace millrace
