#include "formats/synthetic_blueprint.h"

#include <fmt/format.h>

#include "formats/synthetic_traits.h"

namespace millrace {
namespace {

using Kind = SyntheticTensor::Kind;

bool is_fused(const SyntheticShape& s) { return s.architecture == "phi3" || s.architecture == "chatglm"; }

void add_attention(const SyntheticShape& s, const std::string& layer, bool global, std::vector<SyntheticTensor>& out) {
  const int64_t head_dim = global ? s.global_head_dim : s.head_dim;
  const int64_t q = s.heads * head_dim, kv = (global ? s.global_kv_heads : s.kv_heads) * head_dim;
  const bool biased =
      s.architecture == "qwen2" || s.architecture == "chatglm" || s.architecture == "glm4moe" || is_gpt_oss(s);
  const auto projection = [&](const std::string& name, int64_t rows) {
    out.push_back({layer + name + ".weight", {rows, s.hidden}});
    if (biased) out.push_back({layer + name + ".bias", {rows}, Kind::Small});
  };
  if (is_fused(s)) {
    projection("attn_qkv", q + 2 * kv);
  } else {
    projection("attn_q", has_delta_nets(s) ? 2 * q : q);  // queries and their gates
    projection("attn_k", kv);
    if (!global) projection("attn_v", kv);  // Gemma 4's values are its keys
  }
  const bool head_norms = s.architecture.starts_with("qwen3") || has_delta_nets(s) || s.architecture == "lfm2" ||
                          s.architecture == "gemma3" || s.architecture == "gemma4";
  const bool whole_norms = s.architecture == "olmoe";
  if (head_norms || whole_norms) {
    out.push_back({layer + "attn_q_norm.weight", {whole_norms ? q : head_dim}, Kind::Norm});
    out.push_back({layer + "attn_k_norm.weight", {whole_norms ? kv : head_dim}, Kind::Norm});
  }
  out.push_back({layer + "attn_output.weight", {s.hidden, q}});
  if (is_gpt_oss(s)) {
    out.push_back({layer + "attn_output.bias", {s.hidden}, Kind::Small});
    out.push_back({layer + "attn_sinks.weight", {s.heads}, Kind::Small});
  }
}

void add_latent_attention(const SyntheticShape& s, const std::string& layer, std::vector<SyntheticTensor>& out) {
  const int64_t queries = s.heads * s.head_dim, plain = s.head_dim - s.rotary;
  if (s.query_latent > 0) {
    out.push_back({layer + "attn_q_a.weight", {s.query_latent, s.hidden}});
    out.push_back({layer + "attn_q_a_norm.weight", {s.query_latent}, Kind::Norm});
    out.push_back({layer + "attn_q_b.weight", {queries, s.query_latent}});
  } else {
    out.push_back({layer + "attn_q.weight", {queries, s.hidden}});
  }
  out.push_back({layer + "attn_kv_a_mqa.weight", {s.latent + s.rotary, s.hidden}});
  out.push_back({layer + "attn_kv_a_norm.weight", {s.latent}, Kind::Norm});
  out.push_back({layer + "attn_k_b.weight", {s.heads, s.latent, plain}});
  out.push_back({layer + "attn_v_b.weight", {s.heads, s.value, s.latent}});
  out.push_back({layer + "attn_output.weight", {s.hidden, s.heads * s.value}});
}

void add_delta_net(const SyntheticShape& s, const std::string& layer, std::vector<SyntheticTensor>& out) {
  const int64_t keys = s.delta_key_heads * kDeltaDim, values = s.delta_value_heads * kDeltaDim;
  out.push_back({layer + "attn_qkv.weight", {2 * keys + values, s.hidden}});
  out.push_back({layer + "attn_gate.weight", {values, s.hidden}});
  if (s.architecture == "qwen3next") {
    out.push_back({layer + "ssm_ba.weight", {2 * s.delta_value_heads, s.hidden}});
  } else {
    out.push_back({layer + "ssm_beta.weight", {s.delta_value_heads, s.hidden}});
    out.push_back({layer + "ssm_alpha.weight", {s.delta_value_heads, s.hidden}});
  }
  out.push_back({layer + "ssm_conv1d.weight", {2 * keys + values, kDeltaTaps}, Kind::Small});
  out.push_back({layer + "ssm_a", {s.delta_value_heads}, Kind::Decay});
  out.push_back({layer + "ssm_dt.bias", {s.delta_value_heads}, Kind::Small});
  out.push_back({layer + "ssm_norm.weight", {kDeltaDim}, Kind::Norm});
  out.push_back({layer + "ssm_out.weight", {s.hidden, values}});
}

void add_mixer(const SyntheticShape& s, const std::string& layer, std::vector<SyntheticTensor>& out) {
  const int64_t heads = s.mixer_heads, inner = heads * s.mixer_head_dim;
  const int64_t conv = inner + 2 * s.mixer_groups * s.mixer_state;
  out.push_back({layer + "ssm_in.weight", {inner + conv + heads, s.hidden}});
  out.push_back({layer + "ssm_conv1d.weight", {conv, s.taps}, Kind::Norm});
  out.push_back({layer + "ssm_conv1d.bias", {conv}, Kind::Small});
  out.push_back({layer + "ssm_dt.bias", {heads}, Kind::Small});
  out.push_back({layer + "ssm_a", {heads, 1}, Kind::Decay});
  out.push_back({layer + "ssm_d", {heads, 1}, Kind::Norm});
  out.push_back({layer + "ssm_norm.weight", {s.mixer_groups, inner / s.mixer_groups}, Kind::Norm});
  out.push_back({layer + "ssm_out.weight", {s.hidden, inner}});
}

void add_short_conv(const SyntheticShape& s, const std::string& layer, std::vector<SyntheticTensor>& out) {
  out.push_back({layer + "shortconv.in_proj.weight", {3 * s.hidden, s.hidden}});
  out.push_back({layer + "shortconv.conv.weight", {s.hidden, s.taps}, Kind::Norm});
  out.push_back({layer + "shortconv.out_proj.weight", {s.hidden, s.hidden}});
}

void add_feed_forward(const SyntheticShape& s, const std::string& layer, std::vector<SyntheticTensor>& out) {
  const bool gated = !is_fused(s) && s.architecture != "nemotron_h";
  if (gated) out.push_back({layer + "ffn_gate.weight", {s.feed_forward, s.hidden}});
  out.push_back({layer + "ffn_up.weight", {is_fused(s) ? 2 * s.feed_forward : s.feed_forward, s.hidden}});
  out.push_back({layer + "ffn_down.weight", {s.hidden, s.feed_forward}});
}

void add_experts(const SyntheticShape& s, const std::string& layer, std::vector<SyntheticTensor>& out) {
  out.push_back({layer + "ffn_gate_inp.weight", {s.experts, s.hidden}});
  const bool choice_bias = s.architecture == "glm4moe" || s.query_latent > 0;  // and DeepSeek V3
  if (choice_bias) out.push_back({layer + "exp_probs_b.bias", {s.experts}, Kind::Small});
  if (is_gemma(s)) {
    out.push_back({layer + "ffn_gate_up_exps.weight", {s.experts, 2 * s.expert_width, s.hidden}});
  } else {
    out.push_back({layer + "ffn_gate_exps.weight", {s.experts, s.expert_width, s.hidden}});
    out.push_back({layer + "ffn_up_exps.weight", {s.experts, s.expert_width, s.hidden}});
  }
  out.push_back({layer + "ffn_down_exps.weight", {s.experts, s.hidden, s.expert_width}});
  if (is_gemma(s)) {
    out.push_back({layer + "ffn_gate_inp.scale", {s.hidden}, Kind::Norm});
    out.push_back({layer + "ffn_down_exps.scale", {s.experts}, Kind::Norm});
  }
  if (is_gpt_oss(s)) {
    out.push_back({layer + "ffn_gate_inp.bias", {s.experts}, Kind::Small});
    out.push_back({layer + "ffn_gate_exps.bias", {s.experts, s.expert_width}, Kind::Small});
    out.push_back({layer + "ffn_up_exps.bias", {s.experts, s.expert_width}, Kind::Small});
    out.push_back({layer + "ffn_down_exps.bias", {s.experts, s.hidden}, Kind::Small});
  }
  if (s.shared_width == 0) return;
  if (has_delta_nets(s)) out.push_back({layer + "ffn_gate_inp_shexp.weight", {s.hidden}, Kind::Small});
  out.push_back({layer + "ffn_gate_shexp.weight", {s.shared_width, s.hidden}});
  out.push_back({layer + "ffn_up_shexp.weight", {s.shared_width, s.hidden}});
  out.push_back({layer + "ffn_down_shexp.weight", {s.hidden, s.shared_width}});
}

std::vector<SyntheticTensor> gguf_tensors(const SyntheticShape& s) {
  std::vector<SyntheticTensor> out;
  out.push_back({"token_embd.weight", {s.vocab, s.hidden}});
  out.push_back({s.architecture == "lfm2" ? "token_embd_norm.weight" : "output_norm.weight", {s.hidden}, Kind::Norm});
  if (!s.tied) out.push_back({"output.weight", {s.vocab, s.hidden}});
  if (s.rope_factor > 0 && !is_gpt_oss(s)) out.push_back({"rope_freqs.weight", {s.head_dim / 2}, Kind::RopeFactors});
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    const auto norm = [&](const char* name) { out.push_back({layer + name, {s.hidden}, Kind::Norm}); };
    // Attention averages over tokens. In a mixture it stays faint: alike tokens would all choose the same experts.
    const Kind faint = s.experts > 0 ? Kind::FaintNorm : Kind::Norm;
    out.push_back({layer + "attn_norm.weight", {s.hidden}, faint});
    const char kind = kind_of(s, i);
    if (is_delta_net(s, i)) {
      add_delta_net(s, layer, out);
    } else if (s.latent > 0) {
      add_latent_attention(s, layer, out);
    } else if (kind == 'M') {
      add_mixer(s, layer, out);
    } else if (kind == 'C') {
      add_short_conv(s, layer, out);
    } else if (kind == '*') {
      add_attention(s, layer, is_global(s, i), out);
    }
    if (!feeds(s, i)) continue;
    if (kind == '-') {
      add_feed_forward(s, layer, out);
      continue;
    }
    if (is_gemma(s)) out.push_back({layer + "post_attention_norm.weight", {s.hidden}, faint});
    norm(s.architecture == "glm4moe" || is_gpt_oss(s) || has_delta_nets(s) ? "post_attention_norm.weight"
                                                                           : "ffn_norm.weight");
    const bool sparse = s.experts > 0 && i >= s.dense_layers;
    if (sparse) add_experts(s, layer, out);
    if (!sparse || is_gemma(s)) add_feed_forward(s, layer, out);
    if (sparse && is_gemma(s)) {
      for (const char* name : {"pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight"}) norm(name);
    }
    if (is_gemma(s)) norm("post_ffw_norm.weight");
  }
  return out;
}

}  // namespace

SyntheticBlueprint draw_blueprint(const SyntheticShape& shape) {
  if (shape.architecture == "opt") return draw_opt_blueprint(shape);
  return {synthetic_keys(shape), {}, gguf_tensors(shape)};
}

}  // namespace millrace
