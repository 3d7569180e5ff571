// The selective scan of Mamba-2 (SSD). For head h with group g = h / (heads / groups), row after row of a sequence:
//   dt = clamp(softplus(dt[h] + dt_bias[h]), least_step, most_step)
//   S = exp(a[h] dt) S + B[g] (dt x[h])^T
//   out[h] = S^T C[g] + d[h] x[h]
// S is the sequence's state, so that chunks and single tokens continue it.
#pragma once

#include <limits>
#include <span>
#include <string>

#include "kernels/attention/attention.h"

namespace millrace {

struct SsmShape {
  int heads = 0, head_dim = 0, groups = 1, state = 0;
  int64_t inner() const { return int64_t(heads) * head_dim; }
  int64_t group_cols() const { return int64_t(groups) * state; }
  int64_t state_elements() const { return inner() * state; }
  friend bool operator==(const SsmShape&, const SsmShape&) = default;
};

struct SsmScanOp {
  static constexpr std::string_view kName = "ssm_scan";
  struct Problem {
    SsmShape shape;
    int64_t rows = 0;
    DType inputs = DType::F32;  // type of x, b and c
    bool invariant = false;     // a row's bits may not depend on how rows are cut into steps
    int64_t sequences = 1;      // for estimates; plans do not depend on it
    friend bool operator==(const Problem& x, const Problem& y) {
      return x.shape == y.shape && x.rows == y.rows && x.inputs == y.inputs && x.invariant == y.invariant;
    }
  };
  struct Args {
    SsmShape shape;
    Matrix x;                        // [rows, heads * head_dim]
    Matrix b, c;                     // [rows, groups * state]
    Matrix dt;                       // [rows, heads]
    Matrix out;                      // as x; not x
    const float* dt_bias = nullptr;  // [heads]
    const float* a = nullptr;        // [heads], negative
    const float* d = nullptr;        // [heads]
    float least_step = 0, most_step = std::numeric_limits<float>::infinity();
    std::byte* state = nullptr;  // the record of slot s is at state + s * stride: [heads][state][head_dim] f32
    size_t stride = 0;           // bytes
    std::span<const SequenceSlice> sequences;
    SliceTables tables;  // on a GPU
  };

  static KernelList<SsmScanOp> cpu();
  static KernelList<SsmScanOp> cuda();
  static const Kernel<SsmScanOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const SsmScanOp::Problem& problem);

}  // namespace millrace
