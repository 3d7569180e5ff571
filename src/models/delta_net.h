// The gated delta net of Qwen3-Next and Qwen 3.5, in the place of attention: a short convolution over q, k and v, the
// gated delta rule, and a gated norm of each head. Its state are two slots: the convolution's last inputs and the
// rule's matrices.
#pragma once

#include "cache/state_layout.h"
#include "kernels/delta_rule/delta_rule.h"
#include "models/blocks.h"

namespace millrace {

struct DeltaNet {
  DeltaRuleShape shape;
  int taps = 0;
  const Linear* in = nullptr;       // [2 key_width + 2 value_width + 2 value_heads, hidden]: q, k, v, z, b, a
  const Vector* conv = nullptr;     // [2 key_width + value_width][taps]
  const Vector* decay = nullptr;    // [value_heads]: -exp(A_log)
  const Vector* dt_bias = nullptr;  // [value_heads]
  const Vector* norm = nullptr;     // [value_dim]
  int inputs = 0, memory = 0;       // slot states

  int64_t conv_width() const { return 2 * shape.key_width() + shape.value_width(); }
};

// Shape and taps from the config. `usual`: defaults of keys that Hugging Face configs leave out.
DeltaNet read_delta_net(const WeightSource& source, const DeltaNet& usual);
// Adds the weights and the state of one layer, without the output matrix.
DeltaNet load_delta_net(Weights::Layer& at, const DecoderConfig& config, DeltaNet net, StateLayout& state);
TensorName delta_net_output();  // [hidden, value_width]

// The block without its output matrix: [rows, value_width].
Matrix delta_net_block(Pass& pass, const DeltaNet& net, const Normed& x);

}  // namespace millrace
