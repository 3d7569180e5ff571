// The GGUF metadata of a synthetic shape, without its vocabulary.
#include <fmt/format.h>

#include "formats/synthetic_blueprint.h"
#include "formats/synthetic_traits.h"

namespace millrace {
namespace {

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
  if (s.architecture == "granitehybrid" || has_delta_nets(s))
    count("expert_shared_feed_forward_length", s.shared_width);
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
  if (s.architecture == "qwen3next") return;
  m.add_i32_list(fmt::format("{}.rope.dimension_sections", s.architecture), std::vector<int32_t>{11, 11, 10, 0});
}

}  // namespace

GgufMetadataBuilder synthetic_keys(const SyntheticShape& s) {
  GgufMetadataBuilder m;
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", s.architecture, name); };
  const auto count = [&](std::string_view name, int64_t value) { m.add_u32(key(name), static_cast<uint32_t>(value)); };
  m.add_string("general.architecture", s.architecture);
  m.add_string("general.name", fmt::format("synthetic {}", s.name));
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

}  // namespace millrace
