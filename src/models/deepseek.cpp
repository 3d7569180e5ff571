// DeepSeek V2 and V3, and GLM-4.7-Flash: latent attention; the first layers are dense, the others have experts and a
// shared expert. V2 routes by softmax, V3 and GLM by sigmoid with a choice bias. Layers that predict further tokens are
// draft heads.
#include "models/draft_heads.h"
#include "models/registry.h"

namespace millrace {
namespace {

enum class Variant : uint8_t { V2, V3, Glm };

// What transformers assumes for keys that a config leaves out.
struct Defaults {
  LatentSizes sizes;
  MixtureDefaults mixture;
  RouterGroups groups;
  double scale, epsilon;
  int64_t context;
};
Defaults defaults_of(Variant variant) {
  switch (variant) {
    case Variant::V2:
      return {{.plain = 128, .rotary = 64, .value = 128, .latent = 512, .query_latent = 1536},
              {.experts = 64, .per_row = 1, .width = 1407},
              {},
              1,
              1e-6,
              2048};
    case Variant::V3:
      return {{.plain = 128, .rotary = 64, .value = 128, .latent = 512, .query_latent = 1536},
              {.experts = 256, .per_row = 8, .width = 2048},
              {8, 4},
              2.5,
              1e-6,
              4096};
    case Variant::Glm:
      break;
  }
  return {{.plain = 192, .rotary = 64, .value = 256, .latent = 512, .query_latent = 768},
          {.experts = 64, .per_row = 4, .width = 1536},
          {},
          1.8,
          1e-5,
          202752};
}

// GGUF has one name for all. Files older than the key of the router's scores are of V2; so are those without a bias.
Variant variant_of(const WeightSource& source) {
  const std::string& name = source.config().architecture();
  if (!is_gguf(source)) {
    if (name == "Glm4MoeLiteForCausalLM" || name == "glm4_moe_lite") return Variant::Glm;
    return name == "DeepseekV3ForCausalLM" || name == "deepseek_v3" ? Variant::V3 : Variant::V2;
  }
  if (const auto scores = source.config().optional_integer({.gguf = "expert_gating_func"})) {
    if (*scores != 1 && *scores != 2) refuse(source, "DeepSeek with a router other than softmax or sigmoid");
    return *scores == 2 ? Variant::V3 : Variant::V2;
  }
  for (const auto& tensor : source.tensors()) {
    if (tensor.name.ends_with("exp_probs_b.bias")) return Variant::V3;
  }
  return Variant::V2;
}

RouterSettings read_softmax_router(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const std::string method = keys.optional_string({.hf = "topk_method"}).value_or("greedy");
  if (method != "greedy" && method != "group_limited_greedy")
    refuse(source, "topk_method '" + method + "' in DeepSeek V2");
  const bool grouped = is_gguf(source) || method == "group_limited_greedy";
  const RouterGroups groups = grouped ? read_router_groups(source, c) : RouterGroups();
  const auto scale = keys.optional_number({"routed_scaling_factor", "expert_weights_scale"});
  return {.scoring = Scoring::Softmax,  // transformers ignores norm_topk_prob here
          .expert_groups = static_cast<int>(groups.all),
          .kept_groups = static_cast<int>(groups.kept),
          .scale = static_cast<float>(scale.value_or(1))};
}

// A model without layers, and what its layers need.
struct Frame {
  std::unique_ptr<Decoder> model;
  LatentSizes sizes;
  RouterSettings router;
  bool shares = false;  // an expert that all tokens use

  void add_layer(Weights& w, int64_t index, StateLayout& state) const {
    Weights::Layer at(w, index, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_latent_layer(at, state, sizes, router);
    if (layer.experts && router.scoring == Scoring::Sigmoid)
      require_choice_bias(at, *layer.experts, "mlp.gate.e_score_correction_bias");
    if (layer.experts && shares)
      load_shared_expert(at, model->config(), model->activation, /*required=*/true, *layer.experts);
  }
};

Frame make_frame(const WeightSource& source, Weights& w) {
  const Config& keys = source.config();
  const Variant variant = variant_of(source);
  const Defaults usual = defaults_of(variant);
  DecoderConfig c = read_decoder_config(source, {.usual_head_dim = usual.sizes.rotary,
                                                 .usual_context = usual.context,
                                                 .usual_epsilon = usual.epsilon,
                                                 .any_value_size = true});
  const LatentSizes sizes = read_latent_sizes(source, usual.sizes, c);
  c.window = 0;
  skip_further_layers(w, c);
  RouterSettings router;
  if (!is_gguf(source) || keys.optional_integer({.gguf = "expert_count"}).value_or(0) > 0) {
    read_mixture_config(source, c, usual.mixture);
    router = variant == Variant::V2 ? read_softmax_router(source, c)
                                    : read_sigmoid_router(source, c, usual.groups, usual.scale);
    // GGUF files of these architectures have the key only if it is true.
    if (variant != Variant::V2) router.renormalize = renormalizes(source, !is_gguf(source));
  }
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_latent_rope(source, c));
  const bool pairs = variant == Variant::V2 || keys.optional_boolean({.hf = "rope_interleave"}).value_or(true);
  model->rope_style = pairs ? RopeStyle::Interleaved : RopeStyle::Halves;
  model->score_scale = latent_score_scale(source, sizes);
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  const bool shares = keys.optional_integer({"n_shared_experts", "expert_shared_count"}).value_or(1) > 0;
  return {std::move(model), sizes, router, shares};
}

}  // namespace

std::unique_ptr<Model> make_deepseek(const WeightSource& source, Weights& w, StateLayout& state) {
  Frame frame = make_frame(source, w);
  for (int64_t i = 0; i < frame.model->config().layers; ++i) frame.add_layer(w, i, state);
  frame.model->load_ends(w);
  return std::move(frame.model);
}

std::unique_ptr<Model> make_deepseek_heads(const WeightSource& source, Weights& w, StateLayout& state,
                                           const Model& target) {
  Frame frame = make_frame(source, w);
  const int64_t layer = frame.model->config().layers;
  frame.add_layer(w, layer, state);
  load_next_token_head(*frame.model, w, nextn_names(layer), target);
  return std::move(frame.model);
}

}  // namespace millrace
