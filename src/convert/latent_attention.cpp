// DeepSeek V2 and V3, GLM-4.7-Flash and MiniCPM3 as GGUF files.
#include "models/latent_attention.h"

#include <cmath>

#include "convert/architecture_functions.h"
#include "convert/key_checks.h"

namespace millrace {
namespace {

constexpr std::string_view kBoth = "attn_kv_b.weight";  // [heads][plain + value][latent]

// Sizes from the shapes of the tensors, because a config may leave them out.
LatentSizes sizes_of(const ConvertedModel& model) {
  LatentSizes s;
  s.heads = model.config.heads;
  s.rotary = model.config.rotary_dim;
  s.plain = model.config.head_dim - s.rotary;
  s.latent = model.rows_of("blk.0.attn_kv_a_norm.weight");
  s.query_latent = model.rows_of("blk.0.attn_q_a.weight");
  s.value = static_cast<int>(model.find("blk.0.attn_output.weight")->shape.back() / s.heads);
  return s;
}

void add_latent_sizes(ArchitectureKeys& k, const LatentSizes& s) {
  const DecoderConfig& c = k.model.config;
  add_layer_sizes(k);
  k.count("context_length", c.context);
  k.count("feed_forward_length", c.feed_forward);
  k.count("attention.head_count", c.heads);
  k.count("attention.kv_lora_rank", s.latent);
  // 0: none. llama.cpp misses the key unless a model has as many layers as one that it knows.
  k.count("attention.q_lora_rank", s.query_latent);
}

struct Router {
  bool softmax;
  double scale;  // that transformers assumes
};

Router router_of(const ConvertedModel& model) {
  const std::string& name = model.keys().architecture();
  if (name == "Glm4MoeLiteForCausalLM" || name == "glm4_moe_lite") return {false, 1.8};
  if (name == "DeepseekV3ForCausalLM" || name == "deepseek_v3") return {false, 2.5};
  return {true, 1};
}

void add_groups(ArchitectureKeys& k, const Router& router) {
  const std::string method = k.model.keys().optional_string({.hf = "topk_method"}).value_or("greedy");
  if (router.softmax && method == "greedy") return;
  const bool is_v3 = router.scale == 2.5;
  k.count("expert_group_count", k.count_of("n_group", is_v3 ? 8 : 1));
  k.count("expert_group_used_count", k.count_of("topk_group", is_v3 ? 4 : 1));
}

}  // namespace

void deepseek2_keys(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  const LatentSizes s = sizes_of(k.model);
  const Router router = router_of(k.model);
  require_activation(k, Activation::Silu);
  k.require(router.softmax || k.flag_of("rope_interleave", true), "rope_interleave = false");
  add_latent_sizes(k, s);
  k.count("attention.head_count_kv", 1);
  k.count("attention.key_length", s.latent + s.rotary);
  k.count("attention.value_length", s.latent);
  k.count("attention.key_length_mla", s.query());
  k.count("attention.value_length_mla", s.value);
  if (const double all = k.number_of("rope_parameters.mscale_all_dim", 0); all != 0)
    k.number("rope.scaling.yarn_log_multiplier", 0.1 * all);
  const int64_t leading = leading_dense(k);
  require_experts(k, leading);
  k.count("leading_dense_block_count", leading);
  if (leading == c.layers) return;
  int64_t shared = 0;
  for (int64_t i = leading; i < c.layers; ++i)
    shared = k.model.rows_of(fmt::format("blk.{}.ffn_up_shexp.weight", i)) / c.expert_width;
  k.count("expert_shared_count", shared);
  k.number("expert_weights_scale", k.number_of("routed_scaling_factor", router.scale));
  // transformers ignores norm_topk_prob in V2.
  if (!router.softmax && k.flag_of("norm_topk_prob", true)) k.flag("expert_weights_norm", true);
  add_groups(k, router);
  k.count("expert_gating_func", router.softmax ? kSoftmax : kSigmoid);
}

// Keys and values apart, and the keys of each head transposed.
void deepseek2_tensor(const ConvertedModel& model, FileTensor tensor, std::vector<FileTensor>& out) {
  if (!tensor.name.ends_with(kBoth)) return out.push_back(std::move(tensor));
  const LatentSizes s = sizes_of(model);
  const WeightView all = tensor.sources.front();
  FileTensor keys = tensor, values = std::move(tensor);
  const std::string layer = keys.name.substr(0, keys.name.size() - kBoth.size());
  keys.name = layer + "attn_k_b.weight";
  keys.shape = {s.heads, s.latent, s.plain};
  keys.transposed = true;
  values.name = layer + "attn_v_b.weight";
  values.shape = {s.heads, s.value, s.latent};
  keys.parts = values.parts = {{}};
  const int64_t each = s.plain + s.value;
  for (int64_t head = 0; head < s.heads; ++head) {
    keys.parts[0].pieces.push_back({all.dtype, s.plain, s.latent, all.row(head * each)});
    values.parts[0].pieces.push_back({all.dtype, s.value, s.latent, all.row(head * each + s.plain)});
  }
  out.push_back(std::move(keys));
  out.push_back(std::move(values));
}

void minicpm3_keys(ArchitectureKeys& k) {
  const LatentSizes s = sizes_of(k.model);
  require_activation(k, Activation::Silu);
  k.require(s.query_latent > 0, "a query without low rank");
  k.require(k.number_of("scale_emb", 12) == 12, "this scale_emb");
  k.require(k.number_of("scale_depth", 1.4) == 1.4, "this scale_depth");
  k.require(k.number_of("dim_model_base", 256) == 256, "this dim_model_base");
  add_latent_sizes(k, s);
  k.count("attention.head_count_kv", k.count_of("num_key_value_heads", s.heads));
  k.count("attention.key_length", s.query());
}

void minicpm3_tensor(const ConvertedModel&, FileTensor tensor, std::vector<FileTensor>& out) {
  if (tensor.name.ends_with(kBoth)) tensor.shape.erase(tensor.shape.begin());  // [1, rows, latent]
  out.push_back(std::move(tensor));
}

}  // namespace millrace
