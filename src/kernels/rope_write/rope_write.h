// Applies RoPE to q and k and stores k and v, in one launch or parallel region: three would cost more than the work.
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
    int heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0, rotary_dim = 0;
    bool latent = false;  // only keys are stored
    bool one_head_size() const { return key_dim == value_dim && !latent; }
    friend bool operator==(const Problem&, const Problem&) = default;
  };
  struct Args {
    RopeStyle style = RopeStyle::Halves;
    Matrix q, k;    // [rows, heads * key_dim], [rows, kv_heads * key_dim]; the rotated k need not be written back
    Matrix v;       // [rows, kv_heads * value_dim]; not read if kv is latent
    Matrix angles;  // [rows, rotary_dim] contiguous, as in RopeOp; no columns: no RoPE
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
