// Qwen3-Next and the text models of Qwen 3.5: layers with a gated delta net, and every fourth one with gated attention;
// a feed-forward, or experts and a gated shared expert. Norm weights of Hugging Face folders are stored minus one. The
// layer that predicts further tokens has attention and is a draft head.
#include "models/draft_heads.h"
#include "models/registry.h"

namespace millrace {
namespace {

struct Variant {
  DecoderKeys keys;
  MixtureDefaults experts;       // 0 experts: a dense model
  bool tiled = false;            // GGUF files order value heads so that head h uses key head h % key_heads
  bool may_renormalize = false;  // the config says whether the router's weights are divided by their sum
};

// Whether each layer has attention. GGUF files tell by their tensors.
std::vector<bool> attention_layers(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  std::vector<bool> attends;
  const int64_t interval = keys.optional_integer({.hf = "full_attention_interval"}, {1, 1000}).value_or(4);
  const auto types = keys.optional_array<std::string>({.hf = "layer_types"});
  if (types && std::ssize(*types) != c.layers) keys.fail_key({.hf = "layer_types"}, "must name every layer");
  for (int64_t i = 0; i < c.layers; ++i) {
    if (is_gguf(source)) {
      attends.push_back(!source.has("blk." + std::to_string(i) + ".ssm_out.weight"));
    } else if (types) {
      const std::string& type = (*types)[static_cast<size_t>(i)];
      if (type != "full_attention" && type != "linear_attention") refuse(source, "a layer of type '" + type + "'");
      attends.push_back(type == "full_attention");
    } else {
      attends.push_back((i + 1) % interval == 0);
    }
  }
  return attends;
}

// q_proj has the rows of each head together: its query and its gate.
AttentionWeights load_gated_attention(Weights::Layer& at, const DecoderConfig& c, float one) {
  require_attention_biases(at);
  AttentionWeights attention;
  attention.gated = true;
  attention.qkv = at.linear({{.name = {"attn_q.weight", "self_attn.q_proj.weight"},
                              .rows = 2 * c.q_dim(),
                              .stored_by = {.groups = c.heads, .members = 2}},
                             {{"attn_k.weight", "self_attn.k_proj.weight"}, c.kv_dim()},
                             {{"attn_v.weight", "self_attn.v_proj.weight"}, c.kv_dim()}},
                            c.hidden);
  attention.out = at.linear({{{"attn_output.weight", "self_attn.o_proj.weight"}, c.hidden}}, c.q_dim());
  attention.q_norm = at.vector({"attn_q_norm.weight", "self_attn.q_norm.weight"}, c.head_dim, one);
  attention.k_norm = at.vector({"attn_k_norm.weight", "self_attn.k_norm.weight"}, c.head_dim, one);
  return attention;
}

DecoderConfig read_config(const WeightSource& source, Weights& w, const Variant& variant) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source, variant.keys);
  if (variant.experts.experts > 0) read_mixture_config(source, c, variant.experts);
  c.window = 0;
  // GGUF counts the layers that predict further tokens, Hugging Face names them apart.
  const int64_t further = keys.optional_integer({.gguf = "nextn_predict_layers"}, {0, 64}).value_or(0);
  c.layers -= further;
  if (c.layers < 1) keys.fail_key({.gguf = "nextn_predict_layers"}, "must be less than the number of layers");
  for (int64_t i = c.layers; i < c.layers + further; ++i) w.ignore("blk." + std::to_string(i) + ".");
  if (!is_gguf(source)) {
    for (const char* skipped : {"mtp.", "visual."}) w.ignore(skipped);
  }
  return c;
}

// Norm weights of Hugging Face folders are stored minus one.
float norm_offset(const WeightSource& source) { return is_gguf(source) ? 0 : 1; }

// A model without layers.
std::unique_ptr<Decoder> make_frame(const WeightSource& source, Weights& w, const Variant& variant) {
  auto model = std::make_unique<Decoder>(read_config(source, w, variant));
  model->rope = w.placed(read_rope_frequencies(source, model->config()));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  if (model->activation != Activation::Silu) refuse(source, "a gated delta net with an activation other than SiLU");
  return model;
}

// The norm before the feed-forward, and experts or a feed-forward.
void load_feed(const WeightSource& source, Weights::Layer& at, const Decoder& model, const Variant& variant,
               DecoderLayer& layer) {
  const DecoderConfig& c = model.config();
  layer.feed_norm =
      at.vector({"post_attention_norm.weight", "post_attention_layernorm.weight"}, c.hidden, norm_offset(source));
  if (c.experts == 0 || !has_experts(at)) {
    layer.feed = load_feed_forward(at, c, model.activation);
    return;
  }
  const RouterSettings router{.scoring = Scoring::Softmax,
                              .renormalize = !variant.may_renormalize || renormalizes(source, true)};
  layer.experts = load_experts(at, c, router, model.activation);
  require_shared_gate(at);
  load_shared_expert(at, c, model.activation, /*required=*/true, *layer.experts);
}

std::unique_ptr<Model> make(const WeightSource& source, Weights& w, StateLayout& state, const Variant& variant) {
  auto model = make_frame(source, w, variant);
  const DecoderConfig& c = model->config();
  const DeltaNet net = read_delta_net(
      source, {.shape = {.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .tiled = variant.tiled},
               .taps = 4});
  const auto attends = attention_layers(source, c);
  const std::string hf = text_model_prefix(source);
  const float one = norm_offset(source);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", hf + "layers.{}."});
    const bool attention = attends[static_cast<size_t>(i)];
    DecoderLayer& layer = attention ? model->add_bare_layer(state) : model->layers.emplace_back();
    layer.attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden, one);
    if (attention) {
      layer.attention = load_gated_attention(at, c, one);
    } else {
      layer.delta = load_delta_net(at, c, net, state);
      layer.attention.out = at.linear({{delta_net_output(), c.hidden}}, net.shape.value_width());
    }
    load_feed(source, at, *model, variant, layer);
  }
  model->load_ends(w, hf, one);
  return model;
}

std::unique_ptr<Model> make_heads(const WeightSource& source, Weights& w, StateLayout& state, const Variant& variant,
                                  const Model& target) {
  auto model = make_frame(source, w, variant);
  const DecoderConfig& c = model->config();
  const float one = norm_offset(source);
  Weights::Layer at(w, c.layers, {"blk.{}.", "mtp.layers.0."});
  DecoderLayer& layer = model->add_bare_layer(state);
  layer.attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden, one);
  layer.attention = load_gated_attention(at, c, one);
  load_feed(source, at, *model, variant, layer);
  NextTokenNames names = nextn_names(c.layers);
  names.embedding_norm.hf = "mtp.pre_fc_norm_embedding.weight";
  names.feature_norm.hf = "mtp.pre_fc_norm_hidden.weight";
  names.combine.hf = "mtp.fc.weight";
  names.norm.hf = "mtp.norm.weight";
  names.embedding.hf = "mtp.embed_tokens.weight";
  names.head.hf = "mtp.lm_head.weight";
  load_next_token_head(*model, w, names, target, one);
  return model;
}

// The defaults of transformers; `feed_forward` is not used where all layers have experts.
DecoderKeys usual_keys(int64_t kv_heads, int64_t feed_forward, int64_t vocab) {
  return {.usual_heads = 16,
          .usual_kv_heads = kv_heads,
          .usual_head_dim = 256,
          .usual_context = 32768,
          .usual_vocab = vocab,
          .usual_feed_forward = feed_forward,
          .usual_rotary = 0.25};
}

const Variant kNext{.keys = usual_keys(2, 5632, 151936),
                    .experts = {.experts = 512, .per_row = 10, .width = 512},
                    .may_renormalize = true};
const Variant kDense{.keys = usual_keys(4, 12288, 248320), .tiled = true};
const Variant kMixture{
    .keys = usual_keys(2, 512, 248320), .experts = {.experts = 256, .per_row = 8, .width = 512}, .tiled = true};

}  // namespace

std::unique_ptr<Model> make_qwen3_next(const WeightSource& source, Weights& w, StateLayout& state) {
  return make(source, w, state, kNext);
}
std::unique_ptr<Model> make_qwen3_5(const WeightSource& source, Weights& w, StateLayout& state) {
  return make(source, w, state, kDense);
}
std::unique_ptr<Model> make_qwen3_5_moe(const WeightSource& source, Weights& w, StateLayout& state) {
  return make(source, w, state, kMixture);
}

std::unique_ptr<Model> make_qwen3_next_heads(const WeightSource& source, Weights& w, StateLayout& state,
                                             const Model& target) {
  return make_heads(source, w, state, kNext, target);
}
std::unique_ptr<Model> make_qwen3_5_heads(const WeightSource& source, Weights& w, StateLayout& state,
                                          const Model& target) {
  return make_heads(source, w, state, kDense, target);
}
std::unique_ptr<Model> make_qwen3_5_moe_heads(const WeightSource& source, Weights& w, StateLayout& state,
                                              const Model& target) {
  return make_heads(source, w, state, kMixture, target);
}

}  // namespace millrace
