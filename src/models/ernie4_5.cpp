// ERNIE 4.5 (dense): as Llama, with interleaved RoPE pairs in both conventions and optional biases.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_ernie4_5(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig config = read_decoder_config(source);
  config.window = 0;  // transformers ignores one
  auto model = std::make_unique<Decoder>(config);
  model->rope = w.placed(read_rope_frequencies(source, model->config()));
  model->rope_style = RopeStyle::Interleaved;
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < model->config().layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    model->add_layer(at, state);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
