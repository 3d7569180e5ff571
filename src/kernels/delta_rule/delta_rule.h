// The gated delta rule over each sequence (gated delta nets: Qwen3-Next, Qwen 3.5). For each row and value head, with
// the state S [key_dim][value_dim], q and k of its key head, both divided by their lengths:
//   S *= exp(decay * softplus(a + dt_bias))
//   S += k outer sigmoid(b) * (v - S^T k)
//   out = S^T q / sqrt(key_dim)
//   out = norm(out) * silu(gate), if the args have a norm
// S is f32 and belongs to the sequence, so that chunks and single tokens continue it.
#pragma once

#include <span>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/causal_conv/causal_conv.h"

namespace millrace {

struct DeltaRuleShape {
  int key_heads = 0, value_heads = 0;  // value_heads is a multiple of key_heads
  int key_dim = 0, value_dim = 0;      // of one head
  // Which key head a value head uses: h * key_heads / value_heads, or with `tiled` h % key_heads.
  bool tiled = false;

  int key_head(int h) const { return tiled ? h % key_heads : h / (value_heads / key_heads); }
  int64_t key_width() const { return int64_t{key_heads} * key_dim; }
  int64_t value_width() const { return int64_t{value_heads} * value_dim; }
  int64_t state_elements() const { return value_width() * key_dim; }
  friend bool operator==(const DeltaRuleShape&, const DeltaRuleShape&) = default;
};

struct DeltaRuleOp {
  static constexpr std::string_view kName = "delta_rule";
  static constexpr float kLengthEpsilon = 1e-6f;  // added to the squared lengths of q and k
  struct Problem {
    DeltaRuleShape shape;
    int64_t rows = 0;
    DType inputs = DType::F32;  // type of q, k and v
    bool invariant = false;     // a row's bits may not depend on how rows are cut into steps
    int64_t sequences = 1;      // for estimates; plans do not depend on it
    friend bool operator==(const Problem& x, const Problem& y) {
      return x.shape == y.shape && x.rows == y.rows && x.inputs == y.inputs && x.invariant == y.invariant;
    }
  };
  struct Args {
    DeltaRuleShape shape;
    Matrix q, k;                     // [rows, key_width]
    Matrix v;                        // [rows, value_width]
    Matrix a, b;                     // [rows, value_heads]
    const float* decay = nullptr;    // [value_heads]: -exp(A_log)
    const float* dt_bias = nullptr;  // [value_heads]
    Matrix out;                      // [rows, value_width]; may alias v
    // Each head of the result gets an RMS norm and is multiplied by silu(gate). Null: neither.
    const float* norm = nullptr;  // [value_dim]
    float epsilon = 0;
    Matrix gate;  // [rows, value_width]
    // The convolution that writes q, k and v. A kernel that takes_along() runs it; others find their inputs written.
    const CausalConvOp::Args* conv = nullptr;
    std::byte* state = nullptr;  // the record of slot s is at state + s * stride: f32 [value_heads][key_dim][value_dim]
    size_t stride = 0;           // bytes
    std::span<const SequenceSlice> sequences;
    SliceTables tables;  // on a GPU
  };

  static KernelList<DeltaRuleOp> cpu();
  static KernelList<DeltaRuleOp> cuda();
  static const Kernel<DeltaRuleOp>* reference();  // scalar; every kernel is tested against it
};
std::string to_string(const DeltaRuleOp::Problem& problem);

}  // namespace millrace
