// Hunyuan (dense): as Llama, with norms of q and k after RoPE, and a factor on the RoPE base for long contexts.
#include <cmath>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// Configs call a fixed alpha "dynamic". GGUF files have it in their base.
RopeFrequencies read_rope(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const double alpha = keys.optional_number({.hf = "rope_parameters.alpha"}).value_or(0);
  const std::string type = keys.optional_string({.hf = "rope_parameters.rope_type"}).value_or("");
  if (type != "dynamic" || alpha == 0) return read_rope_frequencies(source, c);
  if (alpha < 0 || c.head_dim <= 2)
    keys.fail_key({.hf = "rope_parameters.alpha"}, "must be positive, with heads wider than 2");
  const double theta = keys.optional_number({.hf = "rope_parameters.rope_theta"}).value_or(10000);
  return plain_rope_frequencies(theta * std::pow(alpha, double(c.head_dim) / (c.head_dim - 2)), c.rotary_dim);
}

}  // namespace

std::unique_ptr<Model> make_hunyuan(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig config = read_decoder_config(source);
  config.window = 0;  // transformers ignores one
  auto model = std::make_unique<Decoder>(config);
  const DecoderConfig& c = model->config();
  if (source.config().optional_boolean({.hf = "use_cla"}).value_or(false))
    refuse(source, "attention across layers (use_cla)");
  model->rope = w.placed(read_rope(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_layer(at, state);
    layer.attention.q_norm = at.vector({"attn_q_norm.weight", "self_attn.query_layernorm.weight"}, c.head_dim);
    layer.attention.k_norm = at.vector({"attn_k_norm.weight", "self_attn.key_layernorm.weight"}, c.head_dim);
    layer.attention.norms_after_rope = true;
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
