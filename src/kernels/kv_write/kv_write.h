// Stores the new keys and values of a step into their pages, converted to the cache's number format. Stores finite
// numbers only: attention multiplies tiles that include masked rows with a weight of zero, and zero times NaN or
// infinity is NaN.
#pragma once

#include <limits>
#include <string>

#include "kernels/attention/attention.h"
#include "tensor/half.h"

namespace millrace {

struct KvWriteOp {
  static constexpr std::string_view kName = "kv_write";
  struct Problem {
    DType kv = DType::F32;
    int kv_heads = 0, key_dim = 0, value_dim = 0;
    int64_t rows = 0;
    bool latent = false;  // only keys are stored
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Matrix k, v;  // [rows, kv_heads * key_dim], [rows, kv_heads * value_dim]; v is not read if kv is latent
    KvLayer kv;
    std::span<const SequenceSlice> sequences;
    SliceTables tables;  // on a GPU
  };

  static KernelList<KvWriteOp> cpu();  // best first where estimates tie
  static KernelList<KvWriteOp> cuda() { return {}; }
  static const Kernel<KvWriteOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const KvWriteOp::Problem& problem);

// The largest number that the format can store. Q8_0 scales its blocks and has no limit of its own.
inline float largest_kept(DType kv) {
  return kv == DType::F16    ? kLargestF16
         : kv == DType::BF16 ? kLargestBf16
         : kv == kFp8        ? kLargestFp8
                             : std::numeric_limits<float>::max();
}

}  // namespace millrace
