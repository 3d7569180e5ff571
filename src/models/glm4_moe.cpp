// GLM-4.5 to 4.7: RoPE on half of each head, optional norms of q and k; the first layers are dense, the others have
// experts behind DeepSeek-V3's router and a shared expert. Layers that predict further tokens are skipped.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

DecoderConfig read_config(const WeightSource& source) {
  DecoderConfig c = read_decoder_config(source, {.usual_epsilon = 1e-5, .usual_rotary = 0.5});
  read_mixture_config(source, c, {.experts = 128, .per_row = 8, .width = 1408});
  c.window = 0;
  return c;
}

}  // namespace

std::unique_ptr<Model> make_glm4_moe(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_config(source);
  skip_further_layers(w, c);
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  if (keys.optional_integer({.gguf = "expert_gating_func"}).value_or(2) != 2)
    refuse(source, "GLM-4.5 with a router other than sigmoid");
  const RouterSettings router = read_sigmoid_router(source, c);
  const bool shares = keys.optional_integer({"n_shared_experts", "expert_shared_count"}).value_or(1) > 0;
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_mixture_layer(at, state, router);
    if (keys.optional_boolean({.hf = "use_qk_norm"}).value_or(at.has({"attn_q_norm.weight", ""})))
      load_qk_norms(at, c, /*whole=*/false, layer.attention);
    if (layer.experts && shares) load_shared_expert(at, c, model->activation, /*required=*/true, *layer.experts);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
