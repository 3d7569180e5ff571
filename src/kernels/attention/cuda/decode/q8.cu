#include "kernels/attention/cuda/decode/table.cuh"

namespace millrace {

DecodeEntry decode_entry_q8(int head_dim, Softmax softmax, DecodeForm form) {
  switch (head_dim) {
    case 64:
      return decode_entry_of<__half, 64, KvStore::Q8>(softmax, form);
    case 96:
      return decode_entry_of<__half, 96, KvStore::Q8>(softmax, form);
    case 128:
      return decode_entry_of<__half, 128, KvStore::Q8>(softmax, form);
    case 256:
      return decode_entry_of<__half, 256, KvStore::Q8>(softmax, form);
    default:
      return {};
  }
}

}  // namespace millrace
