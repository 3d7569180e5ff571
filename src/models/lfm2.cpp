// LFM2, dense and with experts: layers with a short convolution or with attention (norms of q and k by head); the first
// layers of a mixture are dense, the others choose experts by sigmoid scores that a bias corrects.
#include <algorithm>

#include "models/hybrid.h"
#include "models/registry.h"

namespace millrace {
namespace {

// Which layers have attention.
std::vector<bool> attention_layers(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const auto count = static_cast<size_t>(c.layers);
  std::vector<bool> attends(count, !is_gguf(source));
  const ConfigKey types{.hf = "layer_types"}, indices{.hf = "full_attn_idxs"}, kv{.gguf = "attention.head_count_kv"};
  if (const auto named = keys.optional_array<std::string>(types)) {
    if (named->size() != count) keys.fail_key(types, "must name every layer");
    for (size_t i = 0; i < count; ++i) {
      if ((*named)[i] != "conv" && (*named)[i] != "full_attention") refuse(source, "layer type '" + (*named)[i] + "'");
      attends[i] = (*named)[i] != "conv";
    }
  } else if (const auto listed = keys.optional_array<int64_t>(indices)) {
    for (size_t i = 0; i < count; ++i)
      attends[i] = std::find(listed->begin(), listed->end(), static_cast<int64_t>(i)) != listed->end();
  } else if (is_gguf(source)) {
    const auto heads = keys.array<int64_t>(kv);
    if (heads.size() != count) keys.fail_key(kv, "must have a value for every layer");
    for (size_t i = 0; i < count; ++i) {
      if (heads[i] != 0 && heads[i] != c.kv_heads) refuse(source, "a number of KV heads that differs between layers");
      attends[i] = heads[i] != 0;
    }
  }
  return attends;
}

// LFM2 shrinks the width that its config names; GGUF has the result.
int64_t adjusted_width(const WeightSource& source, int64_t width) {
  const Config& keys = source.config();
  if (is_gguf(source)) return width;
  width = keys.optional_integer({.hf = "block_ff_dim"}, {1, 1 << 22}).value_or(width);
  if (!keys.optional_boolean({.hf = "block_auto_adjust_ff_dim"}).value_or(true)) return width;
  width = static_cast<int64_t>(2 * static_cast<double>(width) / 3);
  const ConfigKey factor_key{.hf = "block_ffn_dim_multiplier"};
  const double factor = keys.optional_number(factor_key).value_or(1);
  if (!(factor > 0 && factor < 1024)) keys.fail_key(factor_key, "must be positive");
  const int64_t multiple = keys.optional_integer({.hf = "block_multiple_of"}, {1, 1 << 20}).value_or(256);
  width = static_cast<int64_t>(factor * static_cast<double>(width));
  return (width + multiple - 1) / multiple * multiple;
}

FeedForwardWeights load_feed(Weights::Layer& at, const DecoderConfig& c) {
  return {.gate_up = at.gate_up({{{"ffn_gate.weight", "feed_forward.w1.weight"}, c.feed_forward},
                                 {{"ffn_up.weight", "feed_forward.w3.weight"}, c.feed_forward}},
                                c.hidden, Activation::Silu),
          .down = at.linear({{{"ffn_down.weight", "feed_forward.w2.weight"}, c.hidden}}, c.feed_forward)};
}

AttentionWeights load_lfm2_attention(Weights::Layer& at, const DecoderConfig& c) {
  return {.qkv = at.linear({{{"attn_q.weight", "self_attn.q_proj.weight"}, c.q_dim()},
                            {{"attn_k.weight", "self_attn.k_proj.weight"}, c.kv_dim()},
                            {{"attn_v.weight", "self_attn.v_proj.weight"}, c.kv_dim()}},
                           c.hidden),
          .out = at.linear({{{"attn_output.weight", "self_attn.out_proj.weight"}, c.hidden}}, c.q_dim()),
          .q_norm = at.vector({"attn_q_norm.weight", "self_attn.q_layernorm.weight"}, c.head_dim),
          .k_norm = at.vector({"attn_k_norm.weight", "self_attn.k_layernorm.weight"}, c.head_dim)};
}

RouterSettings read_router(const WeightSource& source) {
  const Config& keys = source.config();
  if (keys.optional_integer({.gguf = "expert_gating_func"}).value_or(2) != 2)
    refuse(source, "LFM2 with a router other than sigmoid");
  return {
      .scoring = Scoring::Sigmoid,
      .renormalize = renormalizes(source, true),
      .sum_epsilon = 1e-6f,
      .scale = static_cast<float>(keys.optional_number({"routed_scaling_factor", "expert_weights_scale"}).value_or(1))};
}

std::unique_ptr<Model> make(const WeightSource& source, Weights& w, StateLayout& state, bool mixture) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source, {.norm_epsilon = "norm_eps",
                                                 .usual_heads = 32,
                                                 .usual_kv_heads = 8,
                                                 .usual_context = 128000,
                                                 .usual_feed_forward = mixture ? 7168 : 12288,
                                                 .usual_epsilon = 1e-5});
  c.window = 0;
  int64_t dense = c.layers;
  if (mixture) {
    read_mixture_config(source, c, {.experts = 32, .per_row = 4, .width = 1792});
    dense = keys.optional_integer({"num_dense_layers", "leading_dense_block_count"}, {0, c.layers}).value_or(2);
  } else {
    c.feed_forward = adjusted_width(source, c.feed_forward);
  }
  const auto taps = static_cast<int>(keys.optional_integer({"conv_L_cache", "shortconv.l_cache"}, {2, 64}).value_or(3));
  auto model = std::make_unique<Hybrid>(c);
  model->rope = w.placed(read_rope_frequencies(source, c, "", 1e6));
  const std::vector<bool> attends = attention_layers(source, c);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    HybridLayer& layer = model->layers.emplace_back();
    layer.norm = at.vector({"attn_norm.weight", "operator_norm.weight"}, c.hidden);
    if (attends[static_cast<size_t>(i)]) {
      layer.attention = load_lfm2_attention(at, c);
      layer.state = state.paged({c.kv_heads, c.head_dim, c.head_dim});
    } else {
      layer.conv = load_short_conv(at, taps, c.hidden, state);
    }
    layer.feed_norm = at.vector({"ffn_norm.weight", "ffn_norm.weight"}, c.hidden);
    if (i < dense) {
      layer.feed = load_feed(at, c);
    } else {
      layer.experts = load_experts(at, c, read_router(source), Activation::Silu);
      if (keys.optional_boolean({.hf = "use_expert_bias"}).value_or(true))
        require_choice_bias(at, *layer.experts, "feed_forward.expert_bias");
    }
  }
  model->load_ends(w, {"token_embd.weight", "model.embed_tokens.weight"},
                   {"token_embd_norm.weight", "model.embedding_norm.weight"});
  return model;
}

}  // namespace

std::unique_ptr<Model> make_lfm2(const WeightSource& source, Weights& w, StateLayout& state) {
  return make(source, w, state, /*mixture=*/false);
}

std::unique_ptr<Model> make_lfm2_moe(const WeightSource& source, Weights& w, StateLayout& state) {
  return make(source, w, state, /*mixture=*/true);
}

}  // namespace millrace
