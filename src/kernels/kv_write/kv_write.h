// Stores the new keys and values of a step into their pages, converted to the cache's number format.
#pragma once

#include <string>

#include "kernels/attention/attention.h"

namespace millrace {

struct KvWriteOp {
  static constexpr std::string_view kName = "kv_write";
  struct Problem {
    DType kv = DType::F32;
    int kv_heads = 0, head_dim = 0;
    int64_t rows = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    Matrix k, v;  // [rows, kv_heads * head_dim]
    KvLayer kv;
    std::span<const SequenceSlice> sequences;
    SliceTables tables;  // on a GPU
  };
};
std::string to_string(const KvWriteOp::Problem& problem);

}  // namespace millrace
