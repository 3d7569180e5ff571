#include "formats/synthetic_blueprint.h"

#include <fmt/format.h>

namespace millrace {
namespace {

using Kind = SyntheticTensor::Kind;

bool is_gemma(const SyntheticShape& s) { return s.architecture.starts_with("gemma"); }
bool is_gpt_oss(const SyntheticShape& s) { return s.architecture == "gpt-oss"; }
bool is_fused(const SyntheticShape& s) { return s.architecture == "phi3" || s.architecture == "chatglm"; }

bool has_delta_nets(const SyntheticShape& s) { return s.delta_key_heads > 0; }
bool is_delta_net(const SyntheticShape& s, int64_t layer) { return has_delta_nets(s) && (layer + 1) % 4 != 0; }
constexpr int64_t kDeltaDim = 128, kDeltaTaps = 4;

// Gemma 4: every sixth layer attends to the whole context and has its own head size and number of KV heads.
bool is_global(const SyntheticShape& s, int64_t layer) { return s.global_head_dim > 0 && (layer + 1) % 6 == 0; }

void add_gemma4_keys(const SyntheticShape& s, GgufMetadataBuilder& m) {
  const auto count = [&](std::string_view name, int64_t value) {
    m.add_u32(fmt::format("gemma4.{}", name), static_cast<uint32_t>(value));
  };
  std::vector<uint32_t> kv_heads;
  for (int64_t i = 0; i < s.layers; ++i)
    kv_heads.push_back(static_cast<uint32_t>(is_global(s, i) ? s.global_kv_heads : s.kv_heads));
  m.add_u32_list("gemma4.attention.head_count_kv", kv_heads);
  count("attention.key_length", s.global_head_dim);
  count("attention.value_length", s.global_head_dim);
  count("attention.key_length_swa", s.head_dim);
  count("attention.value_length_swa", s.head_dim);
  count("rope.dimension_count", s.global_head_dim);
  count("rope.dimension_count_swa", s.head_dim);
  m.add_f32("gemma4.rope.freq_base_swa", 1e4f);
  m.add_f32("gemma4.final_logit_softcapping", 30);
}

void add_latent_keys(const SyntheticShape& s, GgufMetadataBuilder& m) {
  const auto count = [&](std::string_view name, int64_t value) {
    m.add_u32(fmt::format("{}.{}", s.architecture, name), static_cast<uint32_t>(value));
  };
  count("attention.head_count_kv", 1);
  count("attention.kv_lora_rank", s.latent);
  if (s.query_latent > 0) count("attention.q_lora_rank", s.query_latent);
  count("attention.key_length", s.latent + s.rotary);
  count("attention.value_length", s.latent);
  count("attention.key_length_mla", s.head_dim);
  count("attention.value_length_mla", s.value);
  count("rope.dimension_count", s.rotary);
  const bool sigmoid = s.experts >= 256;  // DeepSeek V3
  count("expert_gating_func", sigmoid ? 2 : 1);
  if (sigmoid) {
    count("expert_group_count", 8);
    count("expert_group_used_count", 4);
  }
}

char kind_of(const SyntheticShape& s, int64_t layer) {
  return s.kinds.empty() ? '*' : s.kinds[static_cast<size_t>(layer)];
}
// Whether the layer has a feed-forward. Nemotron-H has one block a layer, Mamba-2 only mixers.
bool feeds(const SyntheticShape& s, int64_t layer) {
  if (s.architecture == "nemotron_h") return kind_of(s, layer) == '-';
  return s.architecture != "mamba2";
}

void add_hybrid_keys(const SyntheticShape& s, GgufMetadataBuilder& m) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", s.architecture, name); };
  const auto count = [&](std::string_view name, int64_t value) { m.add_u32(key(name), static_cast<uint32_t>(value)); };
  std::vector<uint32_t> kv_heads, widths;
  for (int64_t i = 0; i < s.layers; ++i) {
    kv_heads.push_back(static_cast<uint32_t>(kind_of(s, i) == '*' ? s.kv_heads : 0));
    widths.push_back(static_cast<uint32_t>(feeds(s, i) ? s.feed_forward : 0));
  }
  if (s.heads > 0) {
    m.add_u32_list(key("attention.head_count_kv"), kv_heads);
    count("attention.key_length", s.head_dim);
    count("attention.value_length", s.head_dim);
  }
  if (s.architecture == "nemotron_h") {
    m.add_u32_list(key("feed_forward_length"), widths);
  } else {
    count("feed_forward_length", s.feed_forward);
  }
  if (s.mixer_heads == 0) return count("shortconv.l_cache", s.taps);
  count("ssm.conv_kernel", s.taps);
  count("ssm.state_size", s.mixer_state);
  count("ssm.group_count", s.mixer_groups);
  count("ssm.inner_size", s.mixer_heads * s.mixer_head_dim);
  count("ssm.time_step_rank", s.mixer_heads);
  m.add_bool(key("rope.scaling.finetuned"), false);
}

void add_mixture_keys(const SyntheticShape& s, GgufMetadataBuilder& m) {
  const auto count = [&](std::string_view name, int64_t value) {
    m.add_u32(fmt::format("{}.{}", s.architecture, name), static_cast<uint32_t>(value));
  };
  count("expert_count", s.experts);
  count("expert_used_count", s.experts_used);
  count("expert_feed_forward_length", s.expert_width);
  if (s.shared_width > 0) count("expert_shared_count", s.shared_width / s.expert_width);
  if (s.architecture == "granitehybrid") count("expert_shared_feed_forward_length", s.shared_width);
  if (s.dense_layers > 0) count("leading_dense_block_count", s.dense_layers);
}

void add_yarn_keys(const SyntheticShape& s, GgufMetadataBuilder& m) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.rope.scaling.{}", s.architecture, name); };
  m.add_string(key("type"), "yarn");
  m.add_f32(key("factor"), s.rope_factor);
  m.add_u32(key("original_context_length"), static_cast<uint32_t>(double(s.context) / double(s.rope_factor)));
}

void add_delta_keys(const SyntheticShape& s, GgufMetadataBuilder& m) {
  const auto count = [&](std::string_view name, int64_t value) {
    m.add_u32(fmt::format("{}.{}", s.architecture, name), static_cast<uint32_t>(value));
  };
  count("ssm.conv_kernel", kDeltaTaps);
  count("ssm.state_size", kDeltaDim);
  count("ssm.group_count", s.delta_key_heads);
  count("ssm.time_step_rank", s.delta_value_heads);
  count("ssm.inner_size", s.delta_value_heads * kDeltaDim);
  count("full_attention_interval", 4);
}

GgufMetadataBuilder gguf_metadata(const SyntheticShape& s) {
  GgufMetadataBuilder m;
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", s.architecture, name); };
  const auto count = [&](std::string_view name, int64_t value) { m.add_u32(key(name), static_cast<uint32_t>(value)); };
  m.add_string("general.architecture", s.architecture);
  m.add_string("general.name", fmt::format("synthetic {}", s.name));
  m.add_string("tokenizer.ggml.model", "no_vocab");  // other engines expect this key in a file without a vocabulary
  count("vocab_size", s.vocab);
  count("context_length", s.context);
  count("embedding_length", s.hidden);
  count("block_count", s.layers);
  if (s.kinds.empty()) count("feed_forward_length", s.feed_forward);
  count("attention.head_count", s.heads);
  if (!s.kinds.empty()) {
    add_hybrid_keys(s, m);
  } else if (s.architecture == "gemma4") {
    add_gemma4_keys(s, m);
  } else if (s.latent > 0) {
    add_latent_keys(s, m);
  } else {
    count("attention.head_count_kv", s.kv_heads);
    count("attention.key_length", s.head_dim);
    count("attention.value_length", s.head_dim);
    const bool half = s.architecture == "chatglm" || s.architecture == "glm4moe";  // RoPE on half of each head
    count("rope.dimension_count", has_delta_nets(s) ? s.head_dim / 4 : half ? s.head_dim / 2 : s.head_dim);
  }
  if (s.experts > 0) add_mixture_keys(s, m);
  if (is_gpt_oss(s)) add_yarn_keys(s, m);
  if (has_delta_nets(s)) add_delta_keys(s, m);
  m.add_f32(key("rope.freq_base"), s.rope_base);
  m.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  if (s.window > 0) count("attention.sliding_window", s.window);
  if (s.architecture == "phi3") count("rope.scaling.original_context_length", s.context);
  if (s.architecture == "gemma2") {
    m.add_f32(key("attn_logit_softcapping"), 50);
    m.add_f32(key("final_logit_softcapping"), 30);
  }
  if (s.architecture.starts_with("granite") && s.architecture != "granitemoe") {
    m.add_f32(key("embedding_scale"), 12);
    m.add_f32(key("attention.scale"), 1 / static_cast<float>(s.head_dim));
    m.add_f32(key("residual_scale"), 0.22f);
    m.add_f32(key("logit_scale"), s.hidden > 2048 ? 16 : 8);
  }
  return m;
}

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
                          s.architecture == "gemma3" ||                          s.architecture == "gemma4";
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
  out.push_back({layer + "ffn_gate_exps.weight", {s.experts, s.expert_width, s.hidden}});
  out.push_back({layer + "ffn_up_exps.weight", {s.experts, s.expert_width, s.hidden}});
  out.push_back({layer + "ffn_down_exps.weight", {s.experts, s.hidden, s.expert_width}});
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
    out.push_back({layer + "attn_norm.weight", {s.hidden}, s.experts > 0 ? Kind::FaintNorm : Kind::Norm});
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
    if (is_gemma(s)) norm("post_attention_norm.weight");
    norm(s.architecture == "glm4moe" || is_gpt_oss(s) || has_delta_nets(s) ? "post_attention_norm.weight"
                                                                           : "ffn_norm.weight");
    const bool sparse = s.experts > 0 && i >= s.dense_layers;
    sparse ? add_experts(s, layer, out) : add_feed_forward(s, layer, out);
    if (is_gemma(s)) norm("post_ffw_norm.weight");
  }
  return out;
}

std::string opt_config(const SyntheticShape& s) {
  return fmt::format(R"({{"architectures": ["OPTForCausalLM"], "model_type": "opt", "vocab_size": {},
    "hidden_size": {}, "word_embed_proj_dim": {}, "ffn_dim": {}, "num_hidden_layers": {}, "num_attention_heads": {},
    "max_position_embeddings": {}, "do_layer_norm_before": true, "activation_function": "relu", "enable_bias": true,
    "layer_norm_elementwise_affine": true, "tie_word_embeddings": true}})",
                     s.vocab, s.hidden, s.hidden, s.feed_forward, s.layers, s.heads, s.context);
}

std::vector<SyntheticTensor> opt_tensors(const SyntheticShape& s) {
  std::vector<SyntheticTensor> out;
  const auto linear = [&](const std::string& name, int64_t rows, int64_t cols) {
    out.push_back({name + ".weight", {rows, cols}});
    out.push_back({name + ".bias", {rows}, Kind::Small});
  };
  const auto norm = [&](const std::string& name) {
    out.push_back({name + ".weight", {s.hidden}, Kind::Norm});
    out.push_back({name + ".bias", {s.hidden}, Kind::Small});
  };
  constexpr int64_t kPositionOffset = 2;  // the first two rows of OPT's position table are unused
  out.push_back({"model.decoder.embed_tokens.weight", {s.vocab, s.hidden}, Kind::Matrix, "token_embd.weight"});
  out.push_back({"model.decoder.embed_positions.weight", {s.context + kPositionOffset, s.hidden}, Kind::Small});
  norm("model.decoder.final_layer_norm");
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("model.decoder.layers.{}.", i);
    norm(layer + "self_attn_layer_norm");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      linear(layer + "self_attn." + name, s.hidden, s.hidden);
    norm(layer + "final_layer_norm");
    linear(layer + "fc1", s.feed_forward, s.hidden);
    linear(layer + "fc2", s.hidden, s.feed_forward);
  }
  return out;
}

}  // namespace

SyntheticBlueprint draw_blueprint(const SyntheticShape& shape) {
  if (shape.architecture == "opt") return {{}, opt_config(shape), opt_tensors(shape)};
  return {gguf_metadata(shape), {}, gguf_tensors(shape)};
}

}  // namespace millrace
