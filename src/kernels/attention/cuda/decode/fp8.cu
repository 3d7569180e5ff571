#include "kernels/attention/cuda/decode/table.cuh"

namespace millrace {

DecodeEntry decode_entry_fp8(int head_dim, Softmax softmax, DecodeForm form) {
  switch (head_dim) {
    case 64:
      return decode_entry_of<__half, 64, KvStore::Fp8>(softmax, form);
    case 80:
      return decode_entry_of<__half, 80, KvStore::Fp8>(softmax, form);
    case 96:
      return decode_entry_of<__half, 96, KvStore::Fp8>(softmax, form);
    case 128:
      return decode_entry_of<__half, 128, KvStore::Fp8>(softmax, form);
    case 256:
      return decode_entry_of<__half, 256, KvStore::Fp8>(softmax, form);
    default:
      return {};
  }
}

}  // namespace millrace
