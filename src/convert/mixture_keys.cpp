// Keys of mixtures of experts beyond sizes and rope, and what their GGUF files cannot express.
#include <algorithm>

#include "convert/architecture_functions.h"
#include "convert/key_checks.h"

namespace millrace {

void granitemoe_keys(ArchitectureKeys& k) {
  granite_keys(k);
  require_experts(k, 0);
  add_shared_width(k);
}

void gpt_oss_keys(ArchitectureKeys& k) {
  k.require(k.number_of("swiglu_limit", 7) == 7, "this swiglu_limit");
  k.require(k.number_of("swiglu_alpha", 1.702) == 1.702, "this swiglu_alpha");
  k.require(k.model.has("blk.0.attn_q.bias"), "attention without biases");
  add_pattern(k, 2, 2);
}

void qwen2_moe_keys(ArchitectureKeys& k) {
  without_window_keys(k);
  require_experts(k, 0);
  k.require(!k.flag_of("norm_topk_prob", false), "norm_topk_prob = true");
  add_shared_width(k);
}

void qwen3_moe_keys(ArchitectureKeys& k) {
  without_window_keys(k);
  require_experts(k, 0);
  k.require(k.flag_of("norm_topk_prob", false), "norm_topk_prob = false");
}

void olmoe_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  require_experts(k, 0);
  k.require(!k.flag_of("norm_topk_prob", false), "norm_topk_prob = true");
  k.require(!k.model.keys().has({.hf = "clip_qkv"}), "clip_qkv");
}

void glm4_moe_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  const int64_t leading = leading_dense(k);
  require_experts(k, leading);
  k.count("expert_shared_count", k.count_of("n_shared_experts", 1));
  k.count("leading_dense_block_count", leading);
  k.count("expert_gating_func", kSigmoid);
  k.number("expert_weights_scale", k.number_of("routed_scaling_factor", 1));
  k.flag("expert_weights_norm", k.flag_of("norm_topk_prob", true));
  k.count("expert_group_count", k.count_of("n_group", 1));
  k.count("expert_group_used_count", k.count_of("topk_group", 1));
}

void ernie4_5_moe_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  const int64_t leading = k.count_of("moe_layer_start_index", 1), step = k.count_of("moe_layer_interval", 1);
  require_experts(k, leading, std::max<int64_t>(1, step));
  k.require(k.number_of("moe_norm_min", 1e-12) == 1e-12, "this moe_norm_min");
  k.count("interleave_moe_layer_step", step);
  k.count("leading_dense_block_count", leading);
  k.count("expert_shared_count", k.count_of("moe_num_shared_experts", 2));
  add_shared_width(k);
}

void minimax_m2_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  require_experts(k, 0);
  k.count("expert_gating_func", kSigmoid);
}

void phimoe_keys(ArchitectureKeys& k) {
  refuse_window(k);
  require_activation(k, Activation::Silu);
  require_experts(k, 0);
  k.require(k.number_of("router_jitter_noise", 0.01) == 0.01, "this router_jitter_noise");
}

}  // namespace millrace
