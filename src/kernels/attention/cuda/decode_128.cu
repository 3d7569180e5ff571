#include "kernels/attention/cuda/decode_kernel.cuh"

namespace millrace {

DecodeEntry decode_entry_128(DType kv, Softmax softmax) {
  return kv == DType::F16 ? decode_entry_of<__half, 128>(softmax) : decode_entry_of<__nv_bfloat16, 128>(softmax);
}

}  // namespace millrace
