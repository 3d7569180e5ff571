#include "kernels/attention/cuda/prefill/expanded.cuh"

#include <algorithm>
#include <map>

#include "hardware/per_device.h"
#include "kernels/attention/cuda/occupancy.h"
#include "kernels/linear/cuda/tensor_map.h"

namespace millrace {
namespace {

struct Compiled {
  void (*kernel)(ExpandedParams) = nullptr;  // null: heads are too large
  int tokens = 0, shared_bytes = 0, value_columns = 0;
};

template <class T, int kPlain, int kValueDim>
Compiled compiled() {
  using Config = WarpgroupConfig<kPlain + kSharedColumns, kValueDim>;
  return {prefill_expanded<T, kPlain, kValueDim>, Config::kTokens, Config::kSharedBytes, kValueDim};
}

// MiniCPM3 and small models; DeepSeek; GLM 4.7 Flash.
template <class T>
Compiled compiled_for(int plain_dim, int value_dim) {
  if (plain_dim <= 64 && value_dim <= 64) return compiled<T, 64, 64>();
  if (plain_dim <= 128 && value_dim <= 128) return compiled<T, 128, 128>();
  if (plain_dim <= 192 && value_dim <= 256) return compiled<T, 192, 256>();
  return {};
}
Compiled compiled_for(DType type, int plain_dim, int value_dim) {
  if (type == DType::F16) return compiled_for<__half>(plain_dim, value_dim);
  return type == DType::BF16 ? compiled_for<__nv_bfloat16>(plain_dim, value_dim) : Compiled();
}

// Blocks that the device runs at once; the driver is asked once per kernel.
int resident(const Compiled& c) {
  struct Known {
    std::map<const void*, int> blocks;
  };
  auto& known = per_cuda_device<Known>().blocks;
  const auto* kernel = reinterpret_cast<const void*>(c.kernel);
  const auto found = known.find(kernel);
  if (found != known.end()) return found->second;
  return known[kernel] = resident_blocks(kernel, WarpgroupConfig<128>::kThreads, c.shared_bytes);
}

bool is_aligned(const ExpandedArgs& a) {
  const auto eights = [](int64_t n) { return n % 8 == 0; };
  return a.plain.dtype == a.attention.q.dtype && eights(a.plain_dim) && eights(a.shared_dim) &&
         eights(a.head_columns) && eights(a.plain_stride) && eights(a.shared_stride) && eights(a.position_stride) &&
         a.value_dim % 2 == 0 && a.attention.out.stride % 2 == 0 && moves_by_eights(a.plain, a.plain_dim) &&
         moves_by_eights(a.attention.q, a.shared_dim);
}

}  // namespace

int padded_value(int plain_dim, int value_dim) { return compiled_for(DType::BF16, plain_dim, value_dim).value_columns; }

bool can_attend_expanded(DType type, int plain_dim, int shared_dim, int value_dim) {
  const Compiled c = compiled_for(type, plain_dim, value_dim);
  return c.kernel != nullptr && shared_dim <= kSharedColumns && device_capability() == 90 && resident(c) > 0;
}

CudaError launch_expanded_attention(DType type, const ExpandedArgs& a, const CudaLaunch& launch) {
  const Compiled c = compiled_for(type, a.plain_dim, a.value_dim);
  if (c.kernel == nullptr || !is_aligned(a)) return cudaErrorInvalidValue;
  ExpandedParams w;
  w.prefill.args = a.attention;
  w.prefill.sequences = 1;
  w.prefill.heads = w.prefill.kv_heads = a.heads;
  w.prefill.tiles = (a.slice.rows + kExpandedTile - 1) / kExpandedTile;
  w.plain = a.plain;
  w.plain_stride = a.plain_stride;
  w.shared_stride = a.shared_stride;
  w.plain_dim = a.plain_dim;
  w.shared_dim = a.shared_dim;
  w.value_dim = a.value_dim;
  w.slice = a.slice;
  w.begin = a.begin;
  w.end = a.end;
  w.before = a.before;
  w.after = a.after;
  const int rows = (a.end - a.begin + kExpandedTile - 1) / kExpandedTile * kExpandedTile;
  const auto heads = [&](CUtensorMap& map, int first, int columns) {
    const auto* data = static_cast<const std::byte*>(a.expanded) + size_t{2} * static_cast<size_t>(first);
    const MatrixStack stack{data,
                            rows,
                            a.heads,
                            columns,
                            a.head_columns,  // a matrix for each position
                            size_t{2} * static_cast<size_t>(a.heads) * static_cast<size_t>(a.head_columns)};
    return describe(map, type, stack, TensorBox{64, 1, true, c.tokens});
  };
  const bool described =
      heads(w.keys, 0, a.plain_dim) && heads(w.values, a.plain_dim, a.value_dim) &&
      describe(w.shared, type, a.shared, rows, a.shared_dim, a.position_stride, TensorBox{64, c.tokens, true});
  if (!described) return cudaErrorInvalidValue;
  const int grid = std::min(resident(c), w.prefill.tiles * a.heads);
  return launch_kernel(c.kernel, dim3(static_cast<unsigned>(grid)), WarpgroupConfig<128>::kThreads,
                       static_cast<size_t>(c.shared_bytes), launch, w);
}

}  // namespace millrace
