// Cohere's Command R and Aya: LayerNorm without bias, one norm for attention and a gated feed-forward in parallel,
// interleaved RoPE, scaled logits. cohere may have norms of q and k. cohere2 has a window on three of four layers, and
// no RoPE on the others.
#include "models/layer_norm_decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

DecoderConfig read_config(const WeightSource& source, bool second) {
  const Config& keys = source.config();
  // Command R was trained on more positions than max_position_embeddings says.
  const bool longer = keys.has({.hf = "model_max_length"});
  DecoderConfig c = read_layer_norm_config(source, {.context = longer ? "model_max_length" : "max_position_embeddings",
                                                    .norm_epsilon = "layer_norm_eps",
                                                    .usual_context = 8192});
  c.rotary_dim = c.head_dim;
  if (!second) return c;
  const ConfigKey window{"sliding_window", "attention.sliding_window"};
  c.window = static_cast<int>(keys.optional_integer(window, {1, int64_t(1) << 30}).value_or(4096));
  return c;
}

}  // namespace

std::unique_ptr<Model> make_cohere(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  const bool second = keys.architecture() == "Cohere2ForCausalLM" || keys.architecture() == "cohere2";
  auto model = std::make_unique<LayerNormDecoder>(read_config(source, second));
  const DecoderConfig& c = model->config();
  model->residual = Residual::ParallelShared;
  model->rope = w.placed(read_rope_frequencies(source, c, "", second || is_gguf(source) ? 1e4 : 5e5));
  model->rope_style = RopeStyle::Interleaved;
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  model->logit_scale = static_cast<float>(keys.optional_number({"logit_scale", "logit_scale"}).value_or(0.0625));
  model->load(w, state, {.gate = "mlp.gate_proj.weight"});

  const ConfigKey pattern{"sliding_window_pattern", "attention.sliding_window_pattern"};
  const auto windows = layer_windows(source, c, keys.optional_integer(pattern, {1, 1000}).value_or(4));
  const bool head_norms = !second && (is_gguf(source) ? w.has({"blk.0.attn_q_norm.weight", ""})
                                                      : keys.optional_boolean({.hf = "use_qk_norm"}).value_or(false));
  for (int64_t i = 0; i < c.layers; ++i) {
    LayerNormLayer& layer = model->layers[static_cast<size_t>(i)];
    if (second) {
      layer.window = windows[static_cast<size_t>(i)];
      layer.rotates = layer.window > 0;
    }
    if (head_norms) {
      Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}.self_attn."});
      layer.q_norm.weight = at.head_vectors({"attn_q_norm.weight", "q_norm.weight"}, c.heads, c.head_dim);
      layer.k_norm.weight = at.head_vectors({"attn_k_norm.weight", "k_norm.weight"}, c.kv_heads, c.head_dim);
    }
  }
  return model;
}

}  // namespace millrace
