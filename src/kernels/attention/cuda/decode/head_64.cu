#include "kernels/attention/cuda/decode/table.cuh"

namespace millrace {

DecodeEntry decode_entry_64(DType kv, Softmax softmax, DecodeForm form) {
  return decode_entry_of<64>(kv, softmax, form);
}

}  // namespace millrace
