// Falcon-H1: each layer has attention and a Mamba-2 mixer side by side, then a gated feed-forward. Factors on inputs
// and outputs of all blocks; GGUF files have them in the weights.
#include "models/hybrid.h"
#include "models/registry.h"

namespace millrace {
namespace {

float factor(const WeightSource& source, std::string_view key) {
  return static_cast<float>(source.config().optional_number({.hf = key}).value_or(1));
}

std::vector<double> factor_list(const WeightSource& source, std::string_view key, size_t count) {
  const auto list = source.config().optional_array<double>({.hf = key});
  if (!list) return std::vector<double>(count, 1.0);
  if (list->size() != count) source.config().fail_key({.hf = key}, "has the wrong number of values");
  return *list;
}

Mamba2Shape read_shape(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const int64_t expand = keys.optional_integer({.hf = "mamba_expand"}, {1, 64}).value_or(2);
  const int64_t inner = keys.optional_integer({.hf = "mamba_d_ssm"}, {1, 1 << 22}).value_or(expand * c.hidden);
  Mamba2Shape shape = read_mamba2_shape(source, kPrefixedMamba2Keys, inner);
  read_step_limit(source, shape);
  shape.may_lack_norm = !keys.optional_boolean({.hf = "mamba_rms_norm"}).value_or(false);
  return shape;
}

void read_factors(const WeightSource& source, Hybrid& model) {
  const auto feed = factor_list(source, "mlp_multipliers", 2);
  model.factors = {.attention_in = factor(source, "attention_in_multiplier"),
                   .attention_out = factor(source, "attention_out_multiplier"),
                   .mamba_in = factor(source, "ssm_in_multiplier"),
                   .mamba_out = factor(source, "ssm_out_multiplier"),
                   .gate = static_cast<float>(feed[0]),
                   .feed_out = static_cast<float>(feed[1])};
  model.embedding_scale = factor(source, "embedding_multiplier");
  model.logit_scale = factor(source, "lm_head_multiplier");
  model.score_scale *= factor(source, "key_multiplier");
}

// A gate with a factor cannot be computed inside the linear layer.
FeedForwardWeights load_feed(Weights::Layer& at, const DecoderConfig& c, const Hybrid& model) {
  const std::vector<LinearPart> in{{{"ffn_gate.weight", "feed_forward.gate_proj.weight"}, c.feed_forward},
                                   {{"ffn_up.weight", "feed_forward.up_proj.weight"}, c.feed_forward}};
  return {model.factors.gate == 1 ? at.gate_up(in, c.hidden, model.activation) : at.linear(in, c.hidden),
          at.linear({{{"ffn_down.weight", "feed_forward.down_proj.weight"}, c.hidden}}, c.feed_forward)};
}

}  // namespace

std::unique_ptr<Model> make_falcon_h1(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source, {.usual_context = 8192, .usual_epsilon = 1e-5});
  c.window = 0;
  auto model = std::make_unique<Hybrid>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  if (model->activation != Activation::Silu) refuse(source, "Falcon-H1 with an activation other than silu");
  read_factors(source, *model);
  const Mamba2Shape shape = read_shape(source, c);
  const auto projected = factor_list(source, "ssm_multipliers", 5);
  // GGUF files do not name the order; llama.cpp gates first.
  const bool norm_first = keys.optional_boolean({.hf = "mamba_norm_before_gate"}).value_or(!is_gguf(source));
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    HybridLayer& layer = model->layers.emplace_back();
    layer.norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden);
    model->add_attention(layer, at, state);
    layer.mamba = load_mamba2(at, "mamba.", shape, c.hidden, c.norm_epsilon, state);
    layer.mamba->gate = norm_first ? MixerGate::AfterNorm : MixerGate::BeforeNorm;
    for (size_t j = 0; j < 5; ++j) layer.mamba->factors[j] = static_cast<float>(projected[j]);
    // llama.cpp's converter leaves the suffix of this name out.
    const char* feed_norm = at.has({"ffn_norm", ""}) ? "ffn_norm" : "ffn_norm.weight";
    layer.feed_norm = at.vector({feed_norm, "pre_ff_layernorm.weight"}, c.hidden);
    layer.feed = load_feed(at, c, *model);
  }
  model->load_ends(w, {"token_embd.weight", "model.embed_tokens.weight"},
                   {"output_norm.weight", "model.final_layernorm.weight"});
  return model;
}

}  // namespace millrace
