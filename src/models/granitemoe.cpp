// Granite 3 with experts, and with a shared expert (granitemoeshared): Granite's factors, experts chosen by their
// logits.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_granitemoe(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source);
  read_mixture_config(source, c, {.experts = 8, .per_row = 2});
  if (!is_gguf(source)) c.expert_width = c.feed_forward;
  c.window = 0;  // transformers ignores one
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->rope_style = style_of_pairs(w, model->config());
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  read_granite_multipliers(source, *model);
  const bool rotates = keys.optional_boolean({.gguf = "rope.scaling.finetuned"}).value_or(true);
  const bool shares =
      keys.optional_integer({"shared_intermediate_size", "expert_shared_feed_forward_length"}).value_or(0) > 0;
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_mixture_layer(at, state, {.scoring = Scoring::SoftmaxOfChosen});
    if (!rotates) layer.rope = LayerRope::None;
    if (layer.experts && shares) load_shared_expert(at, c, model->activation, /*required=*/true, *layer.experts);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
