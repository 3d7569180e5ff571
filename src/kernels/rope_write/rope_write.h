// Turns q and k and stores k and v in one go: three launches or parallel regions would cost more than the work.
#pragma once

#include <string>

#include "kernels/attention/attention.h"
#include "kernels/rope/rope.h"

namespace millrace {

struct RopeWriteOp {
  static constexpr std::string_view kName = "rope_write";
  struct Problem {
    DType kv = DType::F32;
    RopeStyle style = RopeStyle::Halves;
    int64_t rows = 0;
    int heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    RopeStyle style = RopeStyle::Halves;
    Matrix q, k, v;  // [rows, heads * head_dim] and [rows, kv_heads * head_dim]; k need not be turned in place
    Matrix angles;   // [rows, rotary_dim] as rope takes them, row after row; no columns: nothing turns
    KvLayer kv;
    int heads = 0;
    std::span<const SequenceSlice> sequences;
    SliceTables tables;  // on a GPU
  };

  static KernelList<RopeWriteOp> cpu();  // best first where estimates tie
  static KernelList<RopeWriteOp> cuda();
};
std::string to_string(const RopeWriteOp::Problem& problem);

}  // namespace millrace
