// What each architecture has in its GGUF files beyond sizes and rope, and which settings these files cannot express:
// llama.cpp has fixed values for them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "convert/architecture_keys.h"
#include "models/blocks.h"

namespace millrace {
namespace {

using Keys = ArchitectureKeys;

void require_activation(Keys& k, Activation expected, std::string_view key = "hidden_act") {
  const bool same = read_activation(k.model.source, key, expected) == expected;
  k.require(same, fmt::format("the activation of this config ({})", key));
}

void refuse_window(Keys& k) {
  const DecoderConfig& c = k.model.config;
  k.require(c.window == 0 || c.window >= c.context,
            fmt::format("a sliding window ({} of {} positions)", c.window, c.context));
}

// Whether layers have a window. llama.cpp has a fixed pattern: every `pattern`-th layer has none.
std::vector<bool> windowed_layers(Keys& k, int64_t pattern) {
  const auto windows = layer_windows(k.model.source, k.model.config, pattern);
  std::vector<bool> slides;
  for (const int window : windows) slides.push_back(window > 0);
  return slides;
}

void require_pattern(Keys& k, int64_t pattern, int64_t usual) {
  const std::vector<bool> slides = windowed_layers(k, usual);
  for (size_t i = 0; i < slides.size(); ++i)
    k.require(slides[i] == ((static_cast<int64_t>(i) + 1) % pattern != 0), "such a pattern of layers with a window");
  k.count("attention.sliding_window", k.model.config.window);
}

void add_listed_windows(Keys& k, int64_t pattern) {
  if (k.model.config.window == 0) return;
  k.count("attention.sliding_window", k.model.config.window);
  k.flags("attention.sliding_window_pattern", windowed_layers(k, pattern));
}

bool has_experts(const Keys& k, int64_t layer) {
  return k.model.has(fmt::format("blk.{}.ffn_gate_exps.weight", layer));
}

// Layers below `leading` are dense, and of the others all that are not at a multiple of `step`.
void require_experts(Keys& k, int64_t leading, int64_t step = 1) {
  for (int64_t i = 0; i < k.model.config.layers; ++i)
    k.require(has_experts(k, i) == (i >= leading && (i + 1) % step == 0), "such a pattern of dense layers");
}

int64_t leading_dense(const Keys& k) {
  int64_t layer = 0;
  while (layer < k.model.config.layers && !has_experts(k, layer)) ++layer;
  return layer;
}

void add_shared_width(Keys& k) {
  for (const DeclaredTensor& tensor : k.model.tensors) {
    if (tensor.gguf.ends_with(".ffn_up_shexp.weight"))
      return k.count("expert_shared_feed_forward_length", tensor.shape[0]);
  }
}

void llama(Keys& k) {
  refuse_window(k);
  require_activation(k, Activation::Silu);
  if (k.model.config.experts > 0) require_experts(k, 0);
}

void plain(Keys& k) { require_activation(k, Activation::Silu); }

void without_window(Keys& k) {
  refuse_window(k);
  require_activation(k, Activation::Silu);
}

void gemma(Keys&) {}

void require_gemma_scores(Keys& k, int64_t layers_of_27b) {
  const DecoderConfig& c = k.model.config;
  const double expected = c.layers == layers_of_27b ? double(c.hidden) / c.heads : c.head_dim;
  k.require(k.number_of("query_pre_attn_scalar", c.head_dim) == expected, "this query_pre_attn_scalar");
  require_activation(k, Activation::GeluTanh, "hidden_activation");
}

void gemma2(Keys& k) {
  require_gemma_scores(k, 46);
  require_pattern(k, 2, 2);
  k.number("attn_logit_softcapping", k.number_of("attn_logit_softcapping", 0));
  k.number("final_logit_softcapping", k.number_of("final_logit_softcapping", 0));
}

void gemma3(Keys& k) {
  require_gemma_scores(k, 62);
  require_pattern(k, 6, k.count_of("sliding_window_pattern", 6));
  k.number("rope.freq_base_swa", k.number_of("rope_parameters.sliding_attention.rope_theta", 1e4));
  if (const double cap = k.number_of("final_logit_softcapping", 0); cap != 0) k.number("final_logit_softcapping", cap);
}

void phi3(Keys& k) {
  require_activation(k, Activation::Silu);
  const DecoderConfig& c = k.model.config;
  k.count("rope.scaling.original_context_length", k.count_of("original_max_position_embeddings", c.context));
  k.count("attention.sliding_window", c.window);
}

void chatglm(Keys& k) {
  require_activation(k, Activation::Silu);
  k.require(!k.flag_of("apply_residual_connection_post_layernorm", false), "apply_residual_connection_post_layernorm");
}

void ministral3(Keys& k) {
  without_window(k);
  if (const double beta = k.number_of("rope_parameters.llama_4_scaling_beta", 0); beta != 0)
    k.number("attention.temperature_scale", beta);
}

void smollm3(Keys& k) {
  require_activation(k, Activation::Silu);
  k.require(!k.flag_of("use_sliding_window", false) || k.model.config.window == 0, "a sliding window");
  const auto listed = k.model.keys().optional_array<int64_t>({.hf = "no_rope_layers"}).value_or(std::vector<int64_t>());
  const int64_t interval = std::max<int64_t>(1, k.count_of("no_rope_layer_interval", 4));
  for (int64_t i = 0; i < k.model.config.layers; ++i) {
    const bool rotates = listed.empty() ? (i + 1) % interval != 0 : listed.at(static_cast<size_t>(i)) != 0;
    k.require(rotates == ((i + 1) % 4 != 0), "such a pattern of layers without rope");
  }
}

void olmo2(Keys& k) {
  require_activation(k, Activation::Silu);
  if (k.model.config.window == 0) return;
  k.number("rope.freq_base_swa", k.number_of("rope_parameters.sliding_attention.rope_theta", 5e5));
  add_listed_windows(k, 4);
}

void granite(Keys& k) {
  require_activation(k, Activation::Silu);
  k.number("attention.scale", k.number_of("attention_multiplier", 1));
  k.number("embedding_scale", k.number_of("embedding_multiplier", 1));
  k.number("residual_scale", k.number_of("residual_multiplier", 1));
  k.number("logit_scale", k.number_of("logits_scaling", 1));
}

void granitemoe(Keys& k) {
  granite(k);
  require_experts(k, 0);
  add_shared_width(k);
}

void exaone4(Keys& k) {
  require_activation(k, Activation::Silu);
  add_listed_windows(k, k.model.keys().has({.hf = "layer_types"}) ? 4 : k.count_of("sliding_window_pattern", 4));
}

void cohere(Keys& k) {
  require_activation(k, Activation::Silu);
  k.require(!k.model.has("output.weight"), "an output matrix of its own");
  k.number("logit_scale", k.number_of("logit_scale", 0.0625));
}

void cohere2(Keys& k) {
  cohere(k);
  require_pattern(k, 4, k.count_of("sliding_window_pattern", 4));
}

void starcoder2(Keys& k) {
  refuse_window(k);
  require_activation(k, Activation::GeluTanh);
}

void gpt2(Keys& k) {
  require_activation(k, Activation::GeluTanh, "activation_function");
  k.require(k.flag_of("scale_attn_weights", true), "scale_attn_weights = false");
  k.require(!k.flag_of("scale_attn_by_inverse_layer_idx", false), "scale_attn_by_inverse_layer_idx");
}

void gpt_neox(Keys& k) {
  require_activation(k, Activation::GeluErf);
  k.require(k.model.has("blk.0.attn_qkv.bias"), "attention without biases");
  k.require(k.model.has("output.weight"), "an output matrix that is tied to the embedding");
  k.flag("use_parallel_residual", k.flag_of("use_parallel_residual", true));
}

void phi2(Keys& k) {
  require_activation(k, Activation::GeluTanh);
  k.require(k.model.config.kv_heads == k.model.config.heads, "fewer KV heads than heads");
}

void stablelm(Keys& k) {
  require_activation(k, Activation::Silu);
  k.flag("use_parallel_residual", k.flag_of("use_parallel_residual", false));
}

void nemotron(Keys& k) {
  require_activation(k, Activation::ReluSquared);
  k.number("attention.layer_norm_rms_epsilon", k.model.config.norm_epsilon);
}

void gpt_oss(Keys& k) {
  k.require(k.number_of("swiglu_limit", 7) == 7, "this swiglu_limit");
  k.require(k.number_of("swiglu_alpha", 1.702) == 1.702, "this swiglu_alpha");
  k.require(k.model.has("blk.0.attn_q.bias"), "attention without biases");
  require_pattern(k, 2, 2);
}

void qwen2_moe(Keys& k) {
  without_window(k);
  require_experts(k, 0);
  k.require(!k.flag_of("norm_topk_prob", false), "norm_topk_prob = true");
  add_shared_width(k);
}

void qwen3_moe(Keys& k) {
  without_window(k);
  require_experts(k, 0);
  k.require(k.flag_of("norm_topk_prob", false), "norm_topk_prob = false");
}

void olmoe(Keys& k) {
  require_activation(k, Activation::Silu);
  require_experts(k, 0);
  k.require(!k.flag_of("norm_topk_prob", false), "norm_topk_prob = true");
  k.require(!k.model.keys().has({.hf = "clip_qkv"}), "clip_qkv");
}

constexpr int64_t kSigmoid = 2;  // expert_gating_func

void glm4_moe(Keys& k) {
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

void ernie4_5_moe(Keys& k) {
  require_activation(k, Activation::Silu);
  const int64_t leading = k.count_of("moe_layer_start_index", 1), step = k.count_of("moe_layer_interval", 1);
  require_experts(k, leading, std::max<int64_t>(1, step));
  k.require(k.number_of("moe_norm_min", 1e-12) == 1e-12, "this moe_norm_min");
  k.count("interleave_moe_layer_step", step);
  k.count("leading_dense_block_count", leading);
  k.count("expert_shared_count", k.count_of("moe_num_shared_experts", 2));
}

void minimax_m2(Keys& k) {
  require_activation(k, Activation::Silu);
  require_experts(k, 0);
  k.count("expert_gating_func", kSigmoid);
}

constexpr std::array kRules{
    ArchitectureRule{.gguf = "llama", .extras = llama, .rotates_pairs = true},
    ArchitectureRule{.gguf = "qwen2", .extras = without_window},
    ArchitectureRule{.gguf = "qwen3", .extras = without_window, .biases = false},
    ArchitectureRule{.gguf = "gemma", .extras = gemma, .biases = false},
    ArchitectureRule{.gguf = "gemma2", .extras = gemma2, .biases = false},
    ArchitectureRule{.gguf = "gemma3", .extras = gemma3, .biases = false, .theta = 1e6},
    ArchitectureRule{.gguf = "phi3", .extras = phi3},
    ArchitectureRule{.gguf = "chatglm", .extras = chatglm},
    ArchitectureRule{.gguf = "glm4", .extras = chatglm},
    ArchitectureRule{.gguf = "mistral3", .extras = ministral3, .rotates_pairs = true},
    ArchitectureRule{.gguf = "smollm3", .extras = smollm3, .rotates_pairs = true},
    ArchitectureRule{.gguf = "olmo2", .extras = olmo2},
    ArchitectureRule{.gguf = "granite", .extras = granite, .rotates_pairs = true},
    ArchitectureRule{.gguf = "seed_oss", .extras = plain},
    ArchitectureRule{.gguf = "hunyuan-dense", .extras = plain},
    ArchitectureRule{.gguf = "ernie4_5", .extras = plain},
    ArchitectureRule{.gguf = "exaone4", .extras = exaone4, .biases = false},
    ArchitectureRule{.gguf = "command-r", .extras = cohere, .layer_norm = true, .theta = 5e5},
    ArchitectureRule{.gguf = "cohere2", .extras = cohere2, .layer_norm = true, .biases = false},
    ArchitectureRule{.gguf = "starcoder2", .extras = starcoder2, .layer_norm = true},
    ArchitectureRule{.gguf = "gpt2", .extras = gpt2, .layer_norm = true, .rope = false},
    ArchitectureRule{.gguf = "gptneox", .extras = gpt_neox, .layer_norm = true},
    ArchitectureRule{.gguf = "phi2", .extras = phi2, .layer_norm = true},
    ArchitectureRule{.gguf = "stablelm", .extras = stablelm, .layer_norm = true},
    ArchitectureRule{.gguf = "nemotron", .extras = nemotron, .layer_norm = true},
    ArchitectureRule{.gguf = "gpt-oss", .extras = gpt_oss, .theta = 150000},
    ArchitectureRule{.gguf = "qwen2moe", .extras = qwen2_moe},
    ArchitectureRule{.gguf = "qwen3moe", .extras = qwen3_moe, .biases = false},
    ArchitectureRule{.gguf = "olmoe", .extras = olmoe, .biases = false},
    ArchitectureRule{.gguf = "glm4moe", .extras = glm4_moe, .feed_norm_after = true},
    ArchitectureRule{.gguf = "granitemoe", .extras = granitemoe, .rotates_pairs = true},
    ArchitectureRule{.gguf = "ernie4_5-moe", .extras = ernie4_5_moe, .biases = false, .theta = 5e5},
    ArchitectureRule{.gguf = "minimax-m2", .extras = minimax_m2, .theta = 5e6},
};

}  // namespace

const ArchitectureRule* find_rule(std::string_view gguf) {
  const auto found = std::find_if(kRules.begin(), kRules.end(), [&](const auto& rule) { return rule.gguf == gguf; });
  return found == kRules.end() ? nullptr : found;
}

}  // namespace millrace
