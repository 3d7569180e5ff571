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

RouterSettings read_router(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  if (keys.optional_integer({.gguf = "expert_gating_func"}).value_or(2) != 2)
    refuse(source, "GLM-4.5 with a router other than sigmoid");
  const ConfigKey groups_key{"n_group", "expert_group_count"}, kept_key{"topk_group", "expert_group_used_count"};
  const int64_t groups = keys.optional_integer(groups_key, {1, c.experts}).value_or(1);
  const int64_t kept = keys.optional_integer(kept_key, {1, groups}).value_or(1);
  if (c.experts % groups != 0) keys.fail_key(groups_key, "must divide the number of experts");
  if (groups > 1 && c.experts / groups < 2) keys.fail_key(groups_key, "must leave two experts or more in a group");
  if (c.experts / groups * kept < c.experts_per_row)
    keys.fail_key(kept_key, "must leave enough experts to choose from");
  return {
      .scoring = Scoring::Sigmoid,
      .expert_groups = static_cast<int>(groups),
      .kept_groups = static_cast<int>(kept),
      .groups_by_two_best = true,
      .renormalize = renormalizes(source, true),
      .sum_epsilon = 1e-20f,
      .scale = static_cast<float>(keys.optional_number({"routed_scaling_factor", "expert_weights_scale"}).value_or(1))};
}

}  // namespace

std::unique_ptr<Model> make_glm4_moe(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_config(source);
  // GGUF counts the layers that predict further tokens, Hugging Face does not.
  const int64_t further = keys.optional_integer({"num_nextn_predict_layers", "nextn_predict_layers"}, {0, 64})
                              .value_or(is_gguf(source) ? 0 : 1);
  if (is_gguf(source)) c.layers -= further;
  if (c.layers < 1) keys.fail_key({.gguf = "nextn_predict_layers"}, "must be less than the number of layers");
  for (int64_t i = c.layers; i < c.layers + further; ++i) {
    w.ignore((is_gguf(source) ? "blk." : "model.layers.") + std::to_string(i) + ".");
  }
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  const RouterSettings router = read_router(source, c);
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
