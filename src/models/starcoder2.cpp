// StarCoder 2: LayerNorm and biases everywhere, feed-forward without gate, a window on every layer.
#include "models/layer_norm_decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_starcoder2(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_layer_norm_config(
      source, {.norm_epsilon = "norm_epsilon", .usual_kv_heads = is_gguf(source) ? 0 : 2, .usual_context = 4096});
  const ConfigKey window{"sliding_window", "attention.sliding_window"};
  c.window = static_cast<int>(source.config().optional_integer(window, {0, int64_t(1) << 30}).value_or(0));
  c.rotary_dim = c.head_dim;
  auto model = std::make_unique<LayerNormDecoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::GeluTanh);
  model->load(w, state, {.up = "mlp.c_fc.weight", .down = "mlp.c_proj.weight"});
  return model;
}

}  // namespace millrace
