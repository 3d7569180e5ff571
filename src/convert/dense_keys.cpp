// Keys of dense decoders beyond sizes and rope, and settings that their GGUF files cannot express: llama.cpp has fixed
// values for them.
#include <algorithm>

#include "convert/architecture_functions.h"
#include "convert/key_checks.h"

namespace millrace {

void llama_keys(ArchitectureKeys& k) {
  refuse_window(k);
  require_activation(k, Activation::Silu);
  if (k.model.config.experts > 0) require_experts(k, 0);
}

void plain_keys(ArchitectureKeys& k) { require_activation(k, Activation::Silu); }

void without_window_keys(ArchitectureKeys& k) {
  refuse_window(k);
  require_activation(k, Activation::Silu);
}

void gemma_keys(ArchitectureKeys&) {}

namespace {

void require_gemma_scores(ArchitectureKeys& k, int64_t layers_of_27b) {
  const DecoderConfig& c = k.model.config;
  const double expected = c.layers == layers_of_27b ? double(c.hidden) / c.heads : c.head_dim;
  k.require(k.number_of("query_pre_attn_scalar", c.head_dim) == expected, "this query_pre_attn_scalar");
  require_activation(k, Activation::GeluTanh, "hidden_activation");
}

}  // namespace

void gemma2_keys(ArchitectureKeys& k) {
  require_gemma_scores(k, 46);
  add_pattern(k, 2, 2);
  k.number("attn_logit_softcapping", k.number_of("attn_logit_softcapping", 0));
  k.number("final_logit_softcapping", k.number_of("final_logit_softcapping", 0));
}

void gemma3_keys(ArchitectureKeys& k) {
  require_gemma_scores(k, 62);
  add_pattern(k, 6, k.count_of("sliding_window_pattern", 6));
  add_local_rope(k, 1e4);
  if (const double cap = k.number_of("final_logit_softcapping", 0); cap != 0) k.number("final_logit_softcapping", cap);
}

void phi3_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  const DecoderConfig& c = k.model.config;
  k.count("rope.scaling.original_context_length", k.count_of("original_max_position_embeddings", c.context));
  k.count("attention.sliding_window", c.window);
}

void chatglm_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  k.require(!k.flag_of("apply_residual_connection_post_layernorm", false), "apply_residual_connection_post_layernorm");
}

void ministral3_keys(ArchitectureKeys& k) {
  without_window_keys(k);
  if (const double beta = k.number_of("rope_parameters.llama_4_scaling_beta", 0); beta != 0)
    k.number("attention.temperature_scale", beta);
}

void smollm3_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  k.require(!k.flag_of("use_sliding_window", false) || k.model.config.window == 0, "a sliding window");
  const auto listed = k.model.keys().optional_array<int64_t>({.hf = "no_rope_layers"}).value_or(std::vector<int64_t>());
  const int64_t interval = std::max<int64_t>(1, k.count_of("no_rope_layer_interval", 4));
  for (int64_t i = 0; i < k.model.config.layers; ++i) {
    const bool rotates = listed.empty() ? (i + 1) % interval != 0 : listed.at(static_cast<size_t>(i)) != 0;
    k.require(rotates == ((i + 1) % 4 != 0), "such a pattern of layers without rope");
  }
}

void olmo2_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  if (k.model.config.window == 0 || !add_listed_windows(k, 4)) return;
  add_local_rope(k, 5e5);
}

void granite_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  k.number("attention.scale", k.number_of("attention_multiplier", 1));
  k.number("embedding_scale", k.number_of("embedding_multiplier", 1));
  k.number("residual_scale", k.number_of("residual_multiplier", 1));
  k.number("logit_scale", k.number_of("logits_scaling", 1));
}

void exaone4_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  add_listed_windows(k, k.model.keys().has({.hf = "layer_types"}) ? 4 : k.count_of("sliding_window_pattern", 4));
}

void cohere_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  k.require(!k.model.has("output.weight"), "an output matrix of its own");
  k.number("logit_scale", k.number_of("logit_scale", 0.0625));
}

void cohere2_keys(ArchitectureKeys& k) {
  cohere_keys(k);
  add_pattern(k, 4, k.count_of("sliding_window_pattern", 4));
}

void starcoder2_keys(ArchitectureKeys& k) {
  refuse_window(k);
  require_activation(k, Activation::GeluTanh);
}

void gpt2_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::GeluTanh, "activation_function");
  k.require(k.flag_of("scale_attn_weights", true), "scale_attn_weights = false");
  k.require(!k.flag_of("scale_attn_by_inverse_layer_idx", false), "scale_attn_by_inverse_layer_idx");
}

void gpt_neox_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::GeluErf);
  k.require(k.model.has("blk.0.attn_qkv.bias"), "attention without biases");
  k.require(k.model.has("output.weight"), "an output matrix that is tied to the embedding");
  k.flag("use_parallel_residual", k.flag_of("use_parallel_residual", true));
}

void phi2_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::GeluTanh);
  k.require(k.model.config.kv_heads == k.model.config.heads, "fewer KV heads than heads");
}

void stablelm_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::Silu);
  k.flag("use_parallel_residual", k.flag_of("use_parallel_residual", false));
}

void nemotron_keys(ArchitectureKeys& k) {
  require_activation(k, Activation::ReluSquared);
  k.number("attention.layer_norm_rms_epsilon", k.model.config.norm_epsilon);
}

}  // namespace millrace
