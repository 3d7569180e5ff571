#include "kernels/attention/cuda/decode_kernel.cuh"

namespace millrace {

DecodeEntry decode_entry_80(DType kv, Softmax softmax) {
  return kv == DType::F16 ? decode_entry_of<__half, 80>(softmax) : decode_entry_of<__nv_bfloat16, 80>(softmax);
}

}  // namespace millrace
