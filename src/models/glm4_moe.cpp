// GLM-4.5 to 4.7: RoPE on half of each head, optional norms of q and k; the first layers are dense, the others have
// experts behind DeepSeek-V3's router and a shared expert. Layers that predict further tokens are draft
// heads.
#include "models/draft_heads.h"
#include "models/registry.h"

namespace millrace {
namespace {

DecoderConfig read_config(const WeightSource& source) {
  DecoderConfig c = read_decoder_config(source, {.usual_epsilon = 1e-5, .usual_rotary = 0.5});
  read_mixture_config(source, c, {.experts = 128, .per_row = 8, .width = 1408});
  c.window = 0;
  return c;
}

// A model without layers, and what its layers need.
struct Frame {
  std::unique_ptr<Decoder> model;
  RouterSettings router;
  bool shares = false;  // an expert that all tokens use

  void add_layer(const WeightSource& source, Weights& w, int64_t index, StateLayout& state) const {
    const DecoderConfig& c = model->config();
    Weights::Layer at(w, index, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_mixture_layer(at, state, router);
    if (source.config().optional_boolean({.hf = "use_qk_norm"}).value_or(at.has({"attn_q_norm.weight", ""})))
      load_qk_norms(at, c, /*whole=*/false, layer.attention);
    if (layer.experts) require_choice_bias(at, *layer.experts, "mlp.gate.e_score_correction_bias");
    if (layer.experts && shares) load_shared_expert(at, c, model->activation, /*required=*/true, *layer.experts);
  }
};

Frame make_frame(const WeightSource& source, Weights& w) {
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
  return {std::move(model), router, shares};
}

}  // namespace

std::unique_ptr<Model> make_glm4_moe(const WeightSource& source, Weights& w, StateLayout& state) {
  Frame frame = make_frame(source, w);
  for (int64_t i = 0; i < frame.model->config().layers; ++i) frame.add_layer(source, w, i, state);
  frame.model->load_ends(w);
  return std::move(frame.model);
}

std::unique_ptr<Model> make_glm4_moe_heads(const WeightSource& source, Weights& w, StateLayout& state,
                                           const Model& target) {
  Frame frame = make_frame(source, w);
  const int64_t layer = frame.model->config().layers;
  frame.add_layer(source, w, layer, state);
  load_next_token_head(*frame.model, w, nextn_names(layer), target);
  return std::move(frame.model);
}

}  // namespace millrace
