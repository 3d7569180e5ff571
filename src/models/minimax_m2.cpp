// MiniMax M2: norms of all heads of q and k at once, RoPE on a part of each head, experts with sigmoid scores whose
// choice is corrected by a bias.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_minimax_m2(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source, {.usual_head_dim = is_gguf(source) ? 0 : 128});
  read_mixture_config(source, c, {.experts = 256, .per_row = 8});
  c.window = 0;
  if (!keys.has({.hf = "rope_parameters.partial_rotary_factor"})) {
    c.rotary_dim =
        static_cast<int>(keys.optional_integer({.hf = "rotary_dim"}, {1, c.head_dim}).value_or(c.rotary_dim));
  }
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c, "", 5e6));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  const bool corrects = keys.optional_boolean({.hf = "use_routing_bias"}).value_or(true);
  w.ignore("mtp");  // layers that predict further tokens
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_mixture_layer(at, state, {.scoring = Scoring::Sigmoid, .renormalize = true});
    if (corrects && layer.experts) require_choice_bias(at, *layer.experts, "block_sparse_moe.e_score_correction_bias");
    load_qk_norms(at, c, /*whole=*/true, layer.attention);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
