// Nemotron and Minitron: LayerNorm whose weights Hugging Face stores minus one, feed-forward without gate and with
// squared ReLU, RoPE on a part of each head.
#include "models/layer_norm_decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_nemotron(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c =
      read_layer_norm_config(source, {.norm_epsilon = "norm_eps", .usual_context = 4096, .usual_rotary = 0.5});
  // The converter to GGUF takes hidden / heads for the head size. All published models rotate half of each head.
  if (is_gguf(source) && c.rotary_dim == c.hidden / 2 / c.heads) c.rotary_dim = c.head_dim / 2;
  auto model = std::make_unique<LayerNormDecoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::ReluSquared);
  model->load(w, state, {.norm_offset = 1});
  return model;
}

}  // namespace millrace
