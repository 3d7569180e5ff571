// OLMoE: as Llama, with norms of all heads of q and k at once, an optional clamp of q, k and v, and experts.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_olmoe(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source, {.usual_epsilon = 1e-5});
  read_mixture_config(source, c, {.experts = 64, .per_row = 8});
  c.expert_width = c.feed_forward;
  c.window = 0;  // transformers ignores one
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  const auto clamp = keys.optional_number({"clip_qkv", "attention.clamp_kqv"});
  if (clamp && !(*clamp > 0)) keys.fail_key({"clip_qkv", "attention.clamp_kqv"}, "must be positive");
  const RouterSettings router{.scoring = Scoring::Softmax, .renormalize = renormalizes(source, false)};
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_mixture_layer(at, state, router);
    load_qk_norms(at, c, /*whole=*/true, layer.attention);
    layer.attention.clamp = static_cast<float>(clamp.value_or(0));
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
