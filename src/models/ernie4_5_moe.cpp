// ERNIE 4.5 with experts: attention as ERNIE 4.5; the first layers are dense, the others have experts whose choice is
// corrected by a bias, and shared experts.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_ernie4_5_moe(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source, {.usual_epsilon = 1e-5});
  read_mixture_config(source, c, {.experts = 64, .per_row = 6, .width = 1536});
  c.window = 0;  // transformers ignores one
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c, "", 5e5));
  model->rope_style = RopeStyle::Interleaved;
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  const RouterSettings router{
      .scoring = Scoring::Softmax,
      .renormalize = true,
      .least_sum = static_cast<float>(keys.optional_number({.hf = "moe_norm_min"}).value_or(1e-12))};
  const auto shared = keys.optional_integer({"moe_num_shared_experts", "expert_shared_count"});
  w.ignore("mtp");  // layers that predict further tokens
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_mixture_layer(at, state, router);
    if (layer.experts && shared.value_or(2) > 0)
      load_shared_expert(at, c, model->activation, /*required=*/true, *layer.experts);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
