// Phi 1, 1.5 and 2: LayerNorm and biases, also on the output matrix, one norm for attention and feed-forward in
// parallel, RoPE on a part of each head, optional norms of q and k.
#include "models/layer_norm_decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_phi(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c =
      read_layer_norm_config(source, {.norm_epsilon = "layer_norm_eps", .usual_context = 2048, .usual_rotary = 0.5});
  // The converter to GGUF writes 4 * hidden, whatever the tensor's size is.
  c.feed_forward = gguf_rows(source, "blk.0.ffn_up.weight").value_or(c.feed_forward);
  auto model = std::make_unique<LayerNormDecoder>(c);
  model->residual = Residual::ParallelShared;
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::GeluTanh);
  if (!is_gguf(source)) w.require({"", "lm_head.bias"});
  model->load(
      w, state,
      {.norm = "final_layernorm", .out = "self_attn.dense.weight", .up = "mlp.fc1.weight", .down = "mlp.fc2.weight"});
  if (!source.config().optional_boolean({.hf = "qk_layernorm"}).value_or(false)) return model;
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}.self_attn."});
    const auto norm = [&](const std::string& name) {
      return LayerNormWeights{at.vector({"", name + ".weight"}, c.head_dim),
                              at.vector({"", name + ".bias"}, c.head_dim)};
    };
    LayerNormLayer& layer = model->layers[static_cast<size_t>(i)];
    layer.q_norm = norm("q_layernorm");
    layer.k_norm = norm("k_layernorm");
  }
  return model;
}

}  // namespace millrace
