// EXAONE 4: norms after the blocks, norms of each head of q and k. Models with a window have it on three of four
// layers, and the other layers have no RoPE.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_exaone4(const WeightSource& source, Weights& w, StateLayout& state) {
  auto model = std::make_unique<Decoder>(read_decoder_config(source));
  const DecoderConfig& c = model->config();
  const bool typed = source.config().has({.hf = "layer_types"});
  const int64_t pattern =
      typed ? 4 : source.config().optional_integer({.hf = "sliding_window_pattern"}, {1, 1000}).value_or(4);
  const auto windows = layer_windows(source, c, pattern);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_post_norm_layer(at, state);
    load_qk_norms(at, c, /*whole=*/false, layer.attention);
    layer.window = windows[static_cast<size_t>(i)];
    if (c.window > 0 && layer.window == 0) layer.rope = LayerRope::None;
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
