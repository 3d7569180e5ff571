// StableLM and StableLM 2: LayerNorm, gated feed-forward, RoPE on a part of each head. The 12B has one norm for
// attention and feed-forward in parallel, and norms of q and k with weights of each head.
#include "models/layer_norm_decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_stablelm(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  const auto flag = [&](std::string_view key) { return keys.optional_boolean({.hf = key}).value_or(false); };
  auto model = std::make_unique<LayerNormDecoder>(read_layer_norm_config(
      source, {.head_dim = "", .norm_epsilon = "layer_norm_eps", .usual_context = 4096, .usual_rotary = 0.25}));
  const DecoderConfig& c = model->config();
  // Old GGUF files say use_parallel_residual although they are not; a second norm tells.
  const bool parallel = is_gguf(source) ? !w.has({"blk.0.ffn_norm.weight", ""}) : flag("use_parallel_residual");
  if (parallel) model->residual = Residual::ParallelShared;
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  model->load(w, state, {.gate = "mlp.gate_proj.weight"});
  if (is_gguf(source) ? !w.has({"blk.0.attn_q_norm.weight", ""}) : !flag("qk_layernorm")) return model;
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}.self_attn."});
    LayerNormLayer& layer = model->layers[static_cast<size_t>(i)];
    layer.q_norm.weight = at.head_vectors({"attn_q_norm.weight", "q_layernorm.norms.{}.weight"}, c.heads, c.head_dim);
    layer.k_norm.weight =
        at.head_vectors({"attn_k_norm.weight", "k_layernorm.norms.{}.weight"}, c.kv_heads, c.head_dim);
  }
  return model;
}

}  // namespace millrace
