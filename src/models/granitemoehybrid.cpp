// Granite 4: each layer has a Mamba-2 mixer or attention, then experts with a shared expert, or the shared expert alone
// as a dense feed-forward; Granite's factors; usually no RoPE.
#include "models/hybrid.h"
#include "models/registry.h"

namespace millrace {
namespace {

std::vector<bool> attention_layers(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const auto count = static_cast<size_t>(c.layers);
  std::vector<bool> attends(count, false);
  const ConfigKey kv{.gguf = "attention.head_count_kv"};
  ConfigKey types{.hf = "layer_types"};
  if (!keys.has(types)) types.hf = "layers_block_type";
  if (is_gguf(source)) {
    if (!keys.has_list(kv)) return std::vector<bool>(count, true);
    const auto heads = keys.array<int64_t>(kv);
    if (heads.size() != count) keys.fail_key(kv, "must have a value for every layer");
    for (size_t i = 0; i < count; ++i) {
      if (heads[i] != 0 && heads[i] != c.kv_heads) refuse(source, "a number of KV heads that differs between layers");
      attends[i] = heads[i] != 0;
    }
  } else if (const auto named = keys.optional_array<std::string>(types)) {
    if (named->size() != count) keys.fail_key(types, "must name every layer");
    for (size_t i = 0; i < count; ++i) {
      const std::string& type = (*named)[i];
      attends[i] = type == "attention" || type == "full_attention";
      if (!attends[i] && type != "mamba" && type != "linear_attention") refuse(source, "layer type '" + type + "'");
    }
  }
  return attends;
}

bool rotates(const WeightSource& source) {
  const Config& keys = source.config();
  if (is_gguf(source)) return keys.optional_boolean({.gguf = "rope.scaling.finetuned"}).value_or(true);
  return keys.optional_string({.hf = "position_embedding_type"}).value_or("") == "rope";
}

Mamba2Shape read_shape(const WeightSource& source, const DecoderConfig& c) {
  const int64_t expand = source.config().optional_integer({.hf = "mamba_expand"}, {1, 64}).value_or(2);
  Mamba2Shape shape = read_mamba2_shape(source, kPrefixedMamba2Keys, expand * c.hidden);
  read_step_limit(source, shape);
  return shape;
}

// The shared expert of a model without experts.
FeedForwardWeights load_dense(Weights::Layer& at, const DecoderConfig& c, int64_t width) {
  const TensorName down{"ffn_down.weight", "shared_mlp.output_linear.weight"};
  std::vector<LinearPart> in{{{"", "shared_mlp.input_linear.weight"}, 2 * width}};
  if (is_gguf(at.weights().source())) {
    in = {{{"ffn_gate.weight", ""}, width}, {{"ffn_up.weight", ""}, width}};
  } else {
    const WeightView both = at.slices(in[0].name, {1, 2 * width, c.hidden})[0];
    at.declare("ffn_gate.weight", {width, c.hidden}, {{both.dtype, width, c.hidden, both.data}});
    at.declare("ffn_up.weight", {width, c.hidden}, {{both.dtype, width, c.hidden, both.row(width)}});
  }
  return {at.gate_up(in, c.hidden, Activation::Silu), at.linear({{down, c.hidden}}, width)};
}

}  // namespace

std::unique_ptr<Model> make_granitemoehybrid(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source, {.usual_context = 2048});
  c.window = 0;
  const bool mixture =
      keys.optional_integer({"num_local_experts", "expert_count"}).value_or(is_gguf(source) ? 0 : 8) > 0;
  if (mixture) read_mixture_config(source, c, {.experts = 8, .per_row = 2});
  if (mixture && !is_gguf(source)) c.expert_width = c.feed_forward;
  if (read_activation(source, "hidden_act", Activation::Silu) != Activation::Silu)
    refuse(source, "Granite 4 with an activation other than silu");
  const float epsilon = c.norm_epsilon;  // of the mixers' norms, which the factors below leave alone
  auto model = std::make_unique<Hybrid>(c);
  model->rotates = rotates(source);
  if (model->rotates) model->rope = w.placed(read_rope_frequencies(source, c));
  model->rope_style = style_of_pairs(w, model->config());
  read_granite_multipliers(source, *model);
  const int64_t shared = keys.optional_integer({"shared_intermediate_size", "expert_shared_feed_forward_length"})
                             .value_or(is_gguf(source) ? c.feed_forward : 1024);
  const std::vector<bool> attends = attention_layers(source, c);
  std::optional<Mamba2Shape> shape;
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    HybridLayer& layer = model->layers.emplace_back();
    layer.norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden);
    if (attends[static_cast<size_t>(i)]) {
      model->add_attention(layer, at, state);
    } else {
      if (!shape) shape = read_shape(source, c);
      layer.mamba = load_mamba2(at, "mamba.", *shape, c.hidden, epsilon, state);
    }
    layer.feed_norm = at.vector({"ffn_norm.weight", "post_attention_layernorm.weight"}, c.hidden);
    if (mixture) {
      layer.experts = load_experts(at, c, {.scoring = Scoring::SoftmaxOfChosen}, Activation::Silu);
      if (shared > 0) load_shared_expert(at, c, Activation::Silu, /*required=*/true, *layer.experts);
    } else {
      layer.feed = load_dense(at, c, shared);
    }
  }
  model->load_ends(w, {"token_embd.weight", "model.embed_tokens.weight"}, {"output_norm.weight", "model.norm.weight"});
  return model;
}

}  // namespace millrace
