// The compiled prefill kernels.
#pragma once

#include "kernels/attention/cuda/launch.h"

namespace millrace {

struct PrefillParams {
  CudaAttentionArgs args;
  int sequences = 0, heads = 0, kv_heads = 0, block_size = 0;
  int tiles = 0;  // maximum tiles of query rows over all sequences
};

struct PrefillEntry {
  void (*kernel)(PrefillParams) = nullptr;  // null: not compiled for this head size
  int threads = 0, shared_bytes = 0, tile_rows = 0;
};

int prefill_tiles(const CudaAttentionShape& shape, int tile_rows);

CudaAttentionPlan plan_prefill_hopper(CudaAttentionPlan plan);
CudaError launch_prefill_hopper(const CudaAttentionPlan& plan, const CudaAttentionArgs& args, const CudaLaunch& launch);

PrefillEntry prefill_entry_small(DType kv, int head_dim);  // 64, 80, 96
PrefillEntry prefill_entry_large(DType kv, int head_dim);  // 128, 256

}  // namespace millrace
