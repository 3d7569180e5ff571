// Nemotron-H and Nemotron Nano 2 and 3: each layer is one block behind a norm: a Mamba-2 mixer, attention without RoPE,
// a feed-forward without gate, or experts without gate behind DeepSeek-V3's router, in Nemotron 3 Super between
// projections to a narrower space and back.
#include <algorithm>

#include "models/hybrid.h"
#include "models/registry.h"

namespace millrace {
namespace {

enum class Kind : uint8_t { Mamba, Attention, FeedForward, Experts };

Kind kind_of(const WeightSource& source, std::string_view name) {
  if (name == "M" || name == "mamba" || name == "linear_attention") return Kind::Mamba;
  if (name == "*" || name == "attention" || name == "full_attention") return Kind::Attention;
  if (name == "-" || name == "mlp") return Kind::FeedForward;
  if (name == "E" || name == "moe") return Kind::Experts;
  refuse(source, "layer type '" + std::string(name) + "'");
}

std::vector<Kind> kinds_of_hf(const WeightSource& source) {
  const Config& keys = source.config();
  std::vector<Kind> kinds;
  for (const std::string_view key : {"layers_block_type", "layer_types"}) {
    const auto named = keys.optional_array<std::string>({.hf = key});
    if (!named) continue;
    for (const std::string& name : *named) kinds.push_back(kind_of(source, name));
    return kinds;
  }
  for (const char letter : keys.optional_string({.hf = "hybrid_override_pattern"}).value_or("ME*-"))
    kinds.push_back(kind_of(source, std::string_view(&letter, 1)));
  return kinds;
}

std::vector<Kind> kinds_of_gguf(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const ConfigKey kv{.gguf = "attention.head_count_kv"}, width{.gguf = "feed_forward_length"};
  const auto heads = keys.array<int64_t>(kv), widths = keys.array<int64_t>(width);
  const auto count = static_cast<size_t>(c.layers);
  if (heads.size() != count) keys.fail_key(kv, "must have a value for every layer");
  if (widths.size() != count) keys.fail_key(width, "must have a value for every layer");
  std::vector<Kind> kinds;
  for (size_t i = 0; i < count; ++i) {
    if (heads[i] != 0 && heads[i] != c.kv_heads) refuse(source, "a number of KV heads that differs between layers");
    const bool routed = source.has("blk." + std::to_string(i) + ".ffn_gate_inp.weight");
    kinds.push_back(heads[i] != 0    ? Kind::Attention
                    : routed         ? Kind::Experts
                    : widths[i] != 0 ? Kind::FeedForward
                                     : Kind::Mamba);
  }
  return kinds;
}

RouterSettings read_router(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
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

// GGUF files lack the least step; all published models have the default.
Mamba2Shape read_shape(const WeightSource& source) {
  const Config& keys = source.config();
  const int64_t heads = keys.optional_integer({.hf = "mamba_num_heads"}, {1, 1 << 16}).value_or(128);
  const int64_t head_dim = keys.optional_integer({.hf = "mamba_head_dim"}, {1, 1 << 16}).value_or(64);
  const auto either = [&](std::string_view name, std::string_view older) {
    return keys.has({.hf = older}) ? older : name;
  };
  Mamba2Shape shape = read_mamba2_shape(source,
                                        {.heads = "mamba_num_heads",
                                         .head_dim = "mamba_head_dim",
                                         .groups = either("n_groups", "mamba_n_groups"),
                                         .state = "ssm_state_size",
                                         .taps = either("conv_kernel", "mamba_d_conv")},
                                        heads * head_dim);
  const ConfigKey least{.hf = either("time_step_min", "mamba_dt_min")};
  shape.least_step = static_cast<float>(keys.optional_number(least).value_or(0.001));
  if (!(shape.least_step >= 0)) keys.fail_key(least, "must not be negative");
  return shape;
}

struct Names {
  std::string model = "model.";
  TensorName below(std::string gguf, const std::string& hf) const { return {std::move(gguf), model + hf}; }
};

AttentionWeights load_attention_of(Weights::Layer& at, const DecoderConfig& c) {
  return {.qkv = at.linear({{{"attn_q.weight", "mixer.q_proj.weight"}, c.q_dim()},
                            {{"attn_k.weight", "mixer.k_proj.weight"}, c.kv_dim()},
                            {{"attn_v.weight", "mixer.v_proj.weight"}, c.kv_dim()}},
                           c.hidden),
          .out = at.linear({{{"attn_output.weight", "mixer.o_proj.weight"}, c.hidden}}, c.q_dim())};
}

}  // namespace

std::unique_ptr<Model> make_nemotron_h(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  std::vector<Kind> kinds;
  if (!is_gguf(source)) kinds = kinds_of_hf(source);
  DecoderConfig c = read_decoder_config(source, {.norm_epsilon = "layer_norm_epsilon",
                                                 .usual_heads = 32,
                                                 .usual_kv_heads = 8,
                                                 .usual_head_dim = 128,
                                                 .usual_context = 4096,
                                                 .usual_feed_forward = 21504,
                                                 .usual_layers = std::ssize(kinds),
                                                 .usual_epsilon = 1e-5});
  c.window = 0;
  if (is_gguf(source)) kinds = kinds_of_gguf(source, c);
  c.layers = std::ssize(kinds);  // transformers ignores num_hidden_layers
  if (kinds.empty()) keys.fail_key({.hf = "hybrid_override_pattern"}, "must name a layer");
  if (std::find(kinds.begin(), kinds.end(), Kind::Experts) != kinds.end()) {
    read_mixture_config(source, c, {.experts = 8, .per_row = 2, .width = 7688});
  }
  auto model = std::make_unique<Hybrid>(c);
  model->rotates = false;
  model->activation = read_activation(source, "mlp_hidden_act", Activation::ReluSquared);
  if (read_activation(source, "mamba_hidden_act", Activation::Silu) != Activation::Silu)
    refuse(source, "a mixer with an activation other than silu");
  const Mamba2Shape shape = read_shape(source);
  const Names names{w.has({"", "backbone.embeddings.weight"}) ? "backbone." : "model."};
  w.ignore("mtp.");  // layers that predict further tokens
  for (size_t i = 0; i < kinds.size(); ++i) {
    Weights::Layer at(w, static_cast<int64_t>(i), names.below("blk.{}.", "layers.{}."));
    HybridLayer& layer = model->layers.emplace_back();
    const Vector* norm = at.vector({"attn_norm.weight", "norm.weight"}, c.hidden);
    (kinds[i] == Kind::Mamba || kinds[i] == Kind::Attention ? layer.norm : layer.feed_norm) = norm;
    layer.gated = false;
    switch (kinds[i]) {
      case Kind::Mamba:
        layer.mamba = load_mamba2(at, "mixer.", shape, c.hidden, c.norm_epsilon, state);
        break;
      case Kind::Attention:
        layer.attention = load_attention_of(at, c);
        layer.state = state.paged({c.kv_heads, c.head_dim, c.head_dim});
        break;
      case Kind::FeedForward:
        layer.feed = {at.linear({{{"ffn_up.weight", "mixer.up_proj.weight"}, c.feed_forward}}, c.hidden),
                      at.linear({{{"ffn_down.weight", "mixer.down_proj.weight"}, c.hidden}}, c.feed_forward)};
        break;
      case Kind::Experts:
        layer.experts = load_ungated_experts(
            at, c, read_router(source, c),
            keys.optional_integer({"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"})
                .value_or(7688),
            keys.optional_integer({"moe_latent_size", "moe_latent_size"}, {1, 1 << 20}).value_or(0));
        require_choice_bias(at, *layer.experts, "mixer.gate.e_score_correction_bias");
        break;
    }
  }
  model->load_ends(w, names.below("token_embd.weight", "embeddings.weight"),
                   names.below("output_norm.weight", "norm_f.weight"));
  return model;
}

}  // namespace millrace
