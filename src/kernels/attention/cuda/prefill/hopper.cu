#include <algorithm>

#include "hardware/cuda/driver_function.h"
#include "kernels/attention/cuda/occupancy.h"
#include "kernels/attention/cuda/prefill/hopper.cuh"

namespace millrace {
namespace {

// Persistent blocks process several tiles, so that the start of one overlaps with the end of another.
constexpr bool kBlocksStay = true;

using Kernel = void (*)(WarpgroupParams);
using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encoder() {
  static const auto found = reinterpret_cast<EncodeTiled>(driver_function("cuTensorMapEncodeTiled", 12000));
  return found;
}

struct Compiled {
  Kernel kernel = nullptr;  // null: not for this shape
  int shared_bytes = 0;
};

template <class T>
Compiled compiled_for(int head_dim) {
  switch (head_dim) {
    case 64:
      return {prefill_warpgroup<T, 64>, WarpgroupConfig<64>::kSharedBytes};
    case 128:
      return {prefill_warpgroup<T, 128>, WarpgroupConfig<128>::kSharedBytes};
    case 256:
      return {prefill_warpgroup<T, 256>, WarpgroupConfig<256>::kSharedBytes};
    default:
      return {};
  }
}
Compiled compiled_for(const CudaAttentionShape& shape) {
  if (shape.kv == DType::F16) return compiled_for<__half>(shape.head_dim);
  return shape.kv == DType::BF16 ? compiled_for<__nv_bfloat16>(shape.head_dim) : Compiled();
}

int box_rows(int block_size) { return block_size % 64 == 0 ? 64 : block_size % 32 == 0 ? 32 : 16; }

// All rows of a layer's keys or values as one matrix. The number of pages is unknown and not needed.
bool describe(const CudaAttentionShape& s, const void* data, CUtensorMap& map) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(s.head_dim), 0x7fffffff};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(s.head_dim) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows(s.block_size))}, steps[2] = {1, 1};
  const CUtensorMapDataType type =
      s.kv == DType::F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return encoder()(&map, type, 2, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

CudaAttentionPlan plan_prefill_hopper(CudaAttentionPlan plan) {
  const CudaAttentionShape& s = plan.shape;
  const Compiled compiled = compiled_for(s);
  if (compiled.kernel == nullptr || s.block_size % 16 != 0) return plan;
  if (device_capability() != 90 || encoder() == nullptr) return plan;
  plan.threads = WarpgroupConfig<128>::kThreads;
  plan.shared_bytes = compiled.shared_bytes;
  const int resident = resident_blocks(reinterpret_cast<const void*>(compiled.kernel), plan.threads, plan.shared_bytes);
  const int tiles = prefill_tiles(s, WarpgroupConfig<128>::kRows) * s.heads;
  // With several sequences, only the device knows the cost of each tile: then each tile gets its own block.
  const bool stay = kBlocksStay && s.sequences == 1;
  plan.grid = resident == 0 ? 0 : stay ? std::min(resident, tiles) : tiles;
  return plan;
}

CudaError launch_prefill_hopper(const CudaAttentionPlan& plan, const CudaAttentionArgs& args,
                                const CudaLaunch& launch) {
  const CudaAttentionShape& s = plan.shape;
  if (!moves_by_eights(args.q, s.head_dim)) return cudaErrorInvalidValue;
  WarpgroupParams params;
  params.prefill = {args,       s.sequences,  s.heads,
                    s.kv_heads, s.block_size, prefill_tiles(s, WarpgroupConfig<128>::kRows)};
  params.box_rows = box_rows(s.block_size);
  if (!describe(s, args.keys, params.keys) || !describe(s, args.values, params.values)) return cudaErrorInvalidValue;
  return launch_kernel(compiled_for(s).kernel, dim3(static_cast<unsigned>(plan.grid)), plan.threads,
                       static_cast<size_t>(plan.shared_bytes), launch, params);
}

}  // namespace millrace
