#include "kernels/attention/cuda/decode/table.cuh"

namespace millrace {

DecodeEntry decode_entry_96(DType kv, Softmax softmax, DecodeForm form) {
  return decode_entry_of<96>(kv, softmax, form);
}

}  // namespace millrace
