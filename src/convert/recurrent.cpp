// Mamba-2, Granite 4, Nemotron-H and LFM2 as GGUF files.
#include "convert/recurrent.h"

#include "convert/architecture_functions.h"
#include "convert/key_checks.h"

namespace millrace {
namespace {

constexpr int64_t kEndless = 1 << 20;  // context of models without positions
constexpr double kLeastStep = 0.001;   // of Nemotron-H

// A value for each layer: `present` where it has the tensor, else 0.
void add_where(ArchitectureKeys& k, std::string_view key, std::initializer_list<const char*> tensors, int64_t present) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < k.model.config.layers; ++i) {
    bool has = false;
    for (const char* tensor : tensors) has = has || k.model.has_in_layer(i, tensor);
    values.push_back(has ? static_cast<int32_t>(present) : 0);
  }
  k.counts(key, values);
}

void add_attention(ArchitectureKeys& k) {
  add_layer_sizes(k);
  k.count("attention.head_count", k.model.config.heads);
  add_where(k, "attention.head_count_kv", {"attn_k.weight"}, k.model.config.kv_heads);
}

// The first layer with the tensor; null: no layer has it.
const DeclaredTensor* in_any_layer(const ConvertedModel& model, std::string_view tensor) {
  for (int64_t i = 0; i < model.config.layers; ++i) {
    if (const auto* found = model.find(fmt::format("blk.{}.{}", i, tensor))) return found;
  }
  return nullptr;
}

}  // namespace

int64_t mixer_groups(const ConvertedModel& model) {
  const auto read = [&](std::string_view key) { return model.keys().optional_integer({.hf = key}); };
  const bool prefixed = model.architecture == "granitehybrid" || model.architecture == "falcon-h1";
  if (prefixed) return read("mamba_n_groups").value_or(kPrefixedMamba2Keys.usual_groups);
  if (const auto older = read("mamba_n_groups")) return *older;
  return read("n_groups").value_or(Mamba2Keys().usual_groups);
}

Mamba2Shape mixer_of(const ConvertedModel& model, int64_t groups) {
  Mamba2Shape shape;
  const DeclaredTensor *out = in_any_layer(model, "ssm_out.weight"), *conv = in_any_layer(model, "ssm_conv1d.weight");
  const int64_t inner = out->shape.back();
  shape.taps = static_cast<int>(conv->shape.back());
  shape.scan.heads = static_cast<int>(in_any_layer(model, "ssm_a")->shape.front());
  shape.scan.head_dim = static_cast<int>(inner / shape.scan.heads);
  shape.scan.groups = static_cast<int>(groups);
  shape.scan.state = static_cast<int>((conv->shape.front() - inner) / 2 / groups);
  return shape;
}

void add_mixer(ArchitectureKeys& k, const Mamba2Shape& mixer) {
  Mamba2Shape limits;
  read_step_limit(k.model.source, limits);
  k.require(limits.least_step == 0 && limits.most_step == Mamba2Shape().most_step, "this time_step_limit");
  k.count("ssm.conv_kernel", mixer.taps);
  k.count("ssm.state_size", mixer.scan.state);
  k.count("ssm.group_count", mixer.scan.groups);
  k.count("ssm.inner_size", mixer.scan.inner());
  k.count("ssm.time_step_rank", mixer.scan.heads);
}

void mamba2_keys(ArchitectureKeys& k) {
  add_layer_sizes(k);
  k.count("context_length", kEndless);
  k.count("feed_forward_length", 0);
  k.count("attention.head_count", 0);
  add_mixer(k, mixer_of(k.model, mixer_groups(k.model)));
}

void granite_hybrid_keys(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  const auto position = k.model.keys().optional_string({.hf = "position_embedding_type"});
  const bool rotates = position.value_or("") == "rope";
  const auto scaling = k.model.keys().optional_string({.hf = "rope_parameters.rope_type"});
  k.require(!rotates || scaling.value_or("default") == "default", "scaled RoPE in a hybrid");
  k.require(in_any_layer(k.model, "ssm_a") != nullptr, "a hybrid without mixers");
  add_attention(k);
  k.count("context_length", kEndless);
  k.count("feed_forward_length", c.feed_forward);
  k.number("rope.freq_base", k.number_of("rope_parameters.rope_theta", 10000));
  k.count("rope.dimension_count", c.head_dim);
  k.flag("rope.scaling.finetuned", rotates);  // llama.cpp's switch for RoPE here
  granite_keys(k);
  const DeclaredTensor* shared = in_any_layer(k.model, c.experts > 0 ? "ffn_up_shexp.weight" : "ffn_up.weight");
  if (shared != nullptr) k.count("expert_shared_feed_forward_length", shared->shape.front());
  add_mixer(k, mixer_of(k.model, mixer_groups(k.model)));
}

void nemotron_h_keys(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  require_activation(k, Activation::ReluSquared, "mlp_hidden_act");
  const char* least = k.model.keys().has({.hf = "mamba_dt_min"}) ? "mamba_dt_min" : "time_step_min";
  k.require(k.number_of(least, kLeastStep) == kLeastStep, "this time_step_min");
  k.require(in_any_layer(k.model, "ssm_a") != nullptr, "a hybrid without mixers");
  add_attention(k);
  k.count("context_length", kEndless);
  k.count("attention.key_length", c.head_dim);
  k.count("attention.value_length", c.head_dim);
  k.number("attention.layer_norm_epsilon", norm_epsilon(k));  // of a norm that draft heads have
  k.flag("rope.scaling.finetuned", false);
  add_mixer(k, mixer_of(k.model, mixer_groups(k.model)));
  add_where(k, "feed_forward_length", {"ffn_up.weight", "ffn_up_exps.weight"},
            c.experts > 0 ? c.expert_width : c.feed_forward);
  if (c.experts == 0) return;
  k.require(in_any_layer(k.model, "ffn_up.weight") == nullptr || c.feed_forward == c.expert_width,
            "dense layers of another width beside experts");
  add_shared_width(k);
  if (const int64_t latent = k.count_of("moe_latent_size", 0); latent > 0) k.count("moe_latent_size", latent);
  k.count("expert_shared_count", k.count_of("n_shared_experts", 1));
  k.flag("expert_weights_norm", k.flag_of("norm_topk_prob", true));
  k.number("expert_weights_scale", k.number_of("routed_scaling_factor", 1));
  k.count("expert_group_count", k.count_of("n_group", 1));
  k.count("expert_group_used_count", k.count_of("topk_group", 1));
}

void lfm2_keys(ArchitectureKeys& k) {
  const DecoderConfig& c = k.model.config;
  add_attention(k);
  k.count("context_length", c.context);
  k.count("feed_forward_length", c.feed_forward);
  const DeclaredTensor* conv = in_any_layer(k.model, "shortconv.conv.weight");
  k.count("shortconv.l_cache", conv != nullptr ? conv->shape.back() : k.count_of("conv_L_cache", 3));
}

void lfm2_moe_keys(ArchitectureKeys& k) {
  lfm2_keys(k);
  const int64_t leading = leading_dense(k);
  require_experts(k, leading);
  k.require(k.flag_of("norm_topk_prob", true), "norm_topk_prob = false");
  k.require(k.number_of("routed_scaling_factor", 1) == 1, "this routed_scaling_factor");
  k.count("leading_dense_block_count", leading);
  k.count("expert_gating_func", kSigmoid);
}

// Shapes: [channels, taps] of convolutions, columns of decays and skips, norms by group.
void recurrent_tensor(const ConvertedModel& model, FileTensor tensor, std::vector<FileTensor>& out) {
  const auto is = [&](std::string_view name) { return tensor.name.ends_with(name); };
  if (is(".ssm_conv1d.weight") || is(".shortconv.conv.weight")) tensor.shape = {tensor.shape[0], tensor.shape.back()};
  if (is(".ssm_a") || is(".ssm_d")) tensor.shape = {tensor.shape[0], 1};
  if (is(".ssm_norm.weight")) {
    const int64_t groups = mixer_groups(model);
    tensor.shape = {groups, tensor.shape[0] / groups};
  }
  out.push_back(std::move(tensor));
}

}  // namespace millrace
