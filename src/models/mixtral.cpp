// Mixtral: as Llama, with experts. Its GGUF files are of the architecture "llama".
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_mixtral(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source, {.usual_epsilon = 1e-5});
  read_mixture_config(source, c, {.experts = 8, .per_row = 2});
  c.expert_width = c.feed_forward;
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c, "", is_gguf(source) ? 1e4 : 1e6));
  model->rope_style = style_of_pairs(w, model->config());
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    model->add_mixture_layer(at, state, {.scoring = Scoring::Softmax, .renormalize = true});
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
