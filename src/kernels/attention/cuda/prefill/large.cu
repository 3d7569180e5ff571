#include "kernels/attention/cuda/prefill/kernel.cuh"

namespace millrace {

PrefillEntry prefill_entry_large(DType kv, int head_dim) {
  if (head_dim == 128) return prefill_entry_of<128>(kv);
  if (head_dim == 256) return prefill_entry_of<256>(kv);
  return {};
}

}  // namespace millrace
