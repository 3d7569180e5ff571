#include "kernels/attention/cuda/prefill/kernel.cuh"

namespace millrace {

PrefillEntry prefill_entry_small(DType kv, int head_dim) {
  if (head_dim == 64) return prefill_entry_of<64>(kv);
  if (head_dim == 80) return prefill_entry_of<80>(kv);
  if (head_dim == 96) return prefill_entry_of<96>(kv);
  return {};
}

}  // namespace millrace
