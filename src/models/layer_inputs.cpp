#include "models/layer_inputs.h"

#include <cmath>

namespace millrace {

LayerInputs::LayerInputs(Weights& w, const DecoderConfig& c, const std::string& hf) {
  const WeightSource& source = w.source();
  const ConfigKey width{"hidden_size_per_layer_input", "embedding_length_per_layer_input"};
  width_ = source.config().optional_integer(width, {0, 1 << 16}).value_or(is_gguf(source) ? 0 : 256);
  if (width_ == 0) return;
  const TensorName table{"per_layer_token_embd.weight", hf + "embed_tokens_per_layer.weight"};
  const auto* found = source.find(is_gguf(source) ? table.gguf : table.hf);
  const ConfigKey vocab{.hf = "vocab_size_per_layer_input"};
  int64_t rows = source.config().optional_integer(vocab, {1, 1 << 24}).value_or(262144);
  if (is_gguf(source) && found != nullptr && found->shape.size() == 2) rows = found->shape[0];
  if (rows < c.vocab) refuse(source, "a vocab_size_per_layer_input below vocab_size");
  table_ = w.table(table, rows, c.layers * width_);
  projection_ = w.linear(
      {{{"per_layer_model_proj.weight", hf + "per_layer_model_projection.weight"}, c.layers * width_}}, c.hidden);
  norm_ = w.vector({"per_layer_proj_norm.weight", hf + "per_layer_projection_norm.weight"}, width_);
}

LayerInputs::Layer LayerInputs::load_layer(Weights::Layer& at, const DecoderConfig& c) const {
  return {.gate = at.linear({{{"inp_gate.weight", "per_layer_input_gate.weight"}, width_}}, c.hidden),
          .out = at.linear({{{"proj.weight", "per_layer_projection.weight"}, c.hidden}}, width_),
          .norm = at.vector({"post_norm.weight", "post_per_layer_input_norm.weight"}, c.hidden)};
}

// The norm in add() removes the factor sqrt(2). Instead of dividing the projection by sqrt(hidden), its norm has
// another epsilon.
Matrix LayerInputs::all(Pass& p, Matrix hidden) const {
  const DecoderConfig& c = p.config;
  const Matrix inputs = p.buffer("layer inputs", DType::F32, p.rows(), c.layers * width_);
  p.linear(p.rms_norm(hidden, nullptr), projection_, inputs);
  p.ops.norm({NormKind::Rms, inputs, inputs, norm_->data, nullptr, c.norm_epsilon * static_cast<float>(c.hidden),
              static_cast<int>(c.layers)});
  p.ops.embed({.table = *table_,
               .ids = p.batch.tokens,
               .scale = std::sqrt(float(width_)),
               .accumulate = true,
               .out = inputs,
               .chosen = p.batch.chosen});
  return inputs;
}

// The factor sqrt(2) of `input` doubles the epsilon.
void LayerInputs::add(Pass& p, const Layer& layer, Activation activation, Matrix input, Matrix hidden) const {
  const Matrix gate = p.buffer("input gate", p.ops.working(), hidden.rows, width_);
  p.linear(p.rms_norm(hidden, nullptr), layer.gate, gate);
  p.ops.activate(activation, gate, &input, gate);
  const Matrix branch = p.buffer("branch", DType::F32, hidden.rows, hidden.cols);
  p.linear(gate, layer.out, branch);
  NormOp::Args norm{NormKind::Rms, branch, hidden, layer.norm->data, nullptr, 2 * p.config.norm_epsilon};
  norm.accumulate = true;
  p.ops.norm(norm);
}

}  // namespace millrace
