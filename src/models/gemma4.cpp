// Gemma 4 (text). Layers with a window and layers without differ in head size, KV heads and rope. The last layers may
// use keys and values of earlier layers. Each layer may have experts beside its feed-forward, an input of its own
// (layer_inputs.h), and a factor on the residual stream.
#include <fmt/format.h>

#include <cmath>

#include "models/experts.h"
#include "models/gemma4_layers.h"
#include "models/layer_inputs.h"
#include "models/model.h"
#include "models/registry.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// The experts of a layer: the layer adds post_norm(post_dense(feed(x)) + post_experts(experts(norm(x)))).
struct Mixture {
  const Vector *norm, *post_dense, *post_experts;  // [hidden]
  Experts experts;
};

struct Layer {
  Gemma4Layer shape;
  const Vector *attention_norm, *post_attention_norm, *feed_norm, *post_feed_norm;  // [hidden]
  const Linear* qkv;              // q, k and v; q and k if values are keys; only q if another layer stores them
  const Linear* out;              // [hidden, heads * head_dim]
  const Vector *q_norm, *k_norm;  // [head_dim]; k_norm is null if another layer stores the keys
  FeedForwardWeights feed;
  std::optional<Mixture> mixture = {};
  LayerInputs::Layer input = {};
  int state = 0;
  float scale = 1;  // of the residual stream after the layer
};

float read_layer_scale(const WeightView& view) {
  float value = 1;
  dequantize_row(view.dtype, view.data, &value, 1);
  return value;
}

class Gemma4 final : public Model {
 public:
  Gemma4(const WeightSource& source, Weights& w, StateLayout& state)
      : config_(read_config(source)), inputs_(w, config_, text_model_prefix(source)) {
    const DecoderConfig& c = config_;
    const Config& keys = source.config();
    for (const char* media : {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."}) w.ignore(media);
    activation_ = read_activation(source, "hidden_activation", Activation::GeluTanh);
    logit_cap_ = float(keys.optional_number({"final_logit_softcapping", "final_logit_softcapping"}).value_or(0));
    const std::string hf = text_model_prefix(source);
    const std::vector<Gemma4Layer> shapes = read_gemma4_layers(source, c);
    global_rope_ = w.placed(read_gemma4_rope(source, c, shapes.back().head_dim));
    for (int64_t i = 0; i < c.layers; ++i) {
      const Gemma4Layer& shape = shapes[static_cast<size_t>(i)];
      if (shape.window > 0 && local_rope_.table == nullptr)
        local_rope_ = w.placed(read_gemma4_local_rope(source, shape.head_dim));
      layers_.push_back(load_layer(source, w, state, i, shape, hf));
    }
    const TensorName embedding{"token_embd.weight", hf + "embed_tokens.weight"};
    embedding_ = w.table(embedding, c.vocab, c.hidden);
    norm_ = w.vector({"output_norm.weight", hf + "norm.weight"}, c.hidden);
    head_ = load_output_head(w, c, {"output.weight", "lm_head.weight"}, embedding);
  }

  const DecoderConfig& config() const override { return config_; }

  void forward(Pass& p) const override {
    const DecoderConfig& c = config_;
    const Rope global = p.rope(global_rope_, RopeStyle::Halves);
    const Rope local =
        local_rope_.table != nullptr ? p.rope(local_rope_, RopeStyle::Halves, "local rope angles") : global;
    Matrix hidden = p.embed(*embedding_, std::sqrt(float(c.hidden)));
    const int64_t width = inputs_.width();
    const Matrix inputs = width > 0 ? inputs_.all(p, hidden) : Matrix();
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      Matrix attended =
          attend(p, layer, p.rms_norm(hidden, layer.attention_norm), layer.shape.window > 0 ? local : global);
      Matrix input = width > 0 ? inputs.columns(static_cast<int64_t>(i) * width, width) : hidden;
      if (i + 1 == layers_.size()) {
        if (width > 0) {
          p.narrow({&hidden, &attended, &input});
        } else {
          p.narrow({&hidden, &attended});
        }
      }
      add_block(p, attended, layer.out, layer.post_attention_norm, hidden);
      add_feed(p, layer, hidden);
      if (width > 0) inputs_.add(p, layer.input, activation_, input, hidden);
      if (layer.scale != 1) p.ops.scale(hidden, layer.scale);
    }
    p.head(p.rms_norm(hidden, norm_), head_);
    if (logit_cap_ != 0) p.ops.softcap(p.logits, logit_cap_);
  }

 private:
  static DecoderConfig read_config(const WeightSource& source) {
    const Config& keys = source.config();
    if (keys.optional_string({.hf = "use_bidirectional_attention"}).value_or("") == "all")
      refuse(source, "attention in both directions");
    DecoderConfig c = read_decoder_config(
        source,
        {.usual_heads = 8, .usual_kv_heads = 4, .usual_head_dim = 256, .usual_context = 131072, .usual_vocab = 262144});
    const bool experts = keys.optional_boolean({.hf = "enable_moe_block"}).value_or(false) ||
                         keys.optional_integer({.gguf = "expert_count"}).value_or(0) > 0;
    if (experts) read_mixture_config(source, c);
    return c;
  }

  Layer load_layer(const WeightSource& source, Weights& w, StateLayout& state, int64_t i, const Gemma4Layer& shape,
                   const std::string& hf) const {
    const DecoderConfig& c = config_;
    Weights::Layer at(w, i, {"blk.{}.", hf + "layers.{}."});
    const auto norm = [&](const TensorName& name) { return at.vector(name, c.hidden); };
    const int64_t q = int64_t{c.heads} * shape.head_dim, kv = int64_t{shape.kv_heads} * shape.head_dim;
    std::vector<LinearPart> qkv{{{"attn_q.weight", "self_attn.q_proj.weight"}, q}};
    if (shape.keys_of == i) {
      const LinearPart values{{"attn_v.weight", "self_attn.v_proj.weight"}, kv};
      qkv.push_back({{"attn_k.weight", "self_attn.k_proj.weight"}, kv});
      const bool keys_are_values =
          is_gguf(source)
              ? !at.has(values.name)
              : shape.window == 0 && source.config().optional_boolean({.hf = "attention_k_eq_v"}).value_or(false);
      if (!keys_are_values) qkv.push_back(values);
    } else {  // some files keep the unused matrices
      for (const char* unused : {"k_proj.", "v_proj.", "k_norm.", "v_norm."})
        w.ignore(fmt::format("layers.{}.self_attn.{}", i, unused));
      for (const char* unused : {"attn_k.", "attn_v.", "attn_k_norm."}) w.ignore(fmt::format("blk.{}.{}", i, unused));
    }
    DecoderConfig feed = c;
    feed.feed_forward = shape.feed_forward;
    Layer layer{
        .shape = shape,
        .attention_norm = norm({"attn_norm.weight", "input_layernorm.weight"}),
        .post_attention_norm = norm({"post_attention_norm.weight", "post_attention_layernorm.weight"}),
        .feed_norm = norm({"ffn_norm.weight", "pre_feedforward_layernorm.weight"}),
        .post_feed_norm = norm({"post_ffw_norm.weight", "post_feedforward_layernorm.weight"}),
        .qkv = at.linear(qkv, c.hidden),
        .out = at.linear({{{"attn_output.weight", "self_attn.o_proj.weight"}, c.hidden}}, q),
        .q_norm = at.vector({"attn_q_norm.weight", "self_attn.q_norm.weight"}, shape.head_dim),
        .k_norm = nullptr,
        .feed = load_feed_forward(at, feed, activation_),
    };
    if (shape.keys_of == i) {
      layer.k_norm = at.vector({"attn_k_norm.weight", "self_attn.k_norm.weight"}, shape.head_dim);
      layer.state = state.paged({shape.kv_heads, shape.head_dim, shape.head_dim});
    } else {
      layer.state = layers_[static_cast<size_t>(shape.keys_of)].state;
    }
    if (c.experts > 0) layer.mixture = load_mixture(at);
    if (inputs_.width() > 0) layer.input = inputs_.load_layer(at, c);
    const TensorName scale{"layer_output_scale.weight", "layer_scalar"};
    if (at.has(scale)) layer.scale = read_layer_scale(at.slices(scale, {1})[0]);
    return layer;
  }

  // The router reads RMS(x) * scale / sqrt(hidden).
  Mixture load_mixture(Weights::Layer& at) const {
    const DecoderConfig& c = config_;
    const auto norm = [&](const TensorName& name) { return at.vector(name, c.hidden); };
    Mixture mixture{
        .norm = norm({"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"}),
        .post_dense = norm({"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"}),
        .post_experts = norm({"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"}),
        .experts = load_experts(at, c, {.scoring = Scoring::Softmax, .renormalize = true}, activation_),
    };
    mixture.experts.router_norm = norm({"ffn_gate_inp.scale", "router.scale"});
    mixture.experts.logit_scale = 1 / std::sqrt(float(c.hidden));
    mixture.experts.expert_scale = at.vector({"ffn_down_exps.scale", "router.per_expert_scale"}, c.experts);
    return mixture;
  }

  void add_feed(Pass& p, const Layer& layer, Matrix hidden) const {
    const Matrix feed = p.gated_linear(p.rms_norm(hidden, layer.feed_norm), layer.feed.gate_up, activation_);
    if (!layer.mixture) return add_block(p, feed, layer.feed.down, layer.post_feed_norm, hidden);
    const Mixture& mixture = *layer.mixture;
    const Matrix branch = p.buffer("branch", DType::F32, hidden.rows, hidden.cols);
    const Matrix sum = p.buffer("dense and experts", DType::F32, hidden.rows, hidden.cols);
    p.linear(feed, layer.feed.down, branch);
    p.rms_norm(branch, mixture.post_dense, sum);
    p.ops.scale(branch, 0);  // add_experts() adds to it
    add_experts(p, mixture.experts, p.rms_norm(hidden, mixture.norm), activation_, branch);
    p.add(sum, p.rms_norm(branch, mixture.post_experts));
    p.add(hidden, p.rms_norm(sum, layer.post_feed_norm));
  }

  Matrix attend(Pass& p, const Layer& layer, const Normed& x, const Rope& rope) const {
    const Gemma4Layer& s = layer.shape;
    const AttentionSettings settings{.heads = config_.heads, .scale = 1, .window = s.window};
    const int64_t q_dim = int64_t{config_.heads} * s.head_dim, kv_dim = int64_t{s.kv_heads} * s.head_dim;
    const Matrix qkv = p.buffer("qkv", layer.qkv->n), attended = p.buffer("attended", q_dim);
    const Matrix q = qkv.columns(0, q_dim);
    p.linear(x, layer.qkv, qkv);
    p.group_norm(q, layer.q_norm);
    if (layer.k_norm == nullptr) {
      p.rotate(q, config_.heads, rope);
      p.attend_stored(layer.state, q, settings, attended);
      return attended;
    }
    const Matrix k = qkv.columns(q_dim, kv_dim);
    const bool own_values = qkv.cols > q_dim + kv_dim;
    const Matrix from = own_values ? qkv.columns(q_dim + kv_dim, kv_dim) : k;
    const Matrix v = own_values ? from : p.buffer("values", kv_dim);
    p.ops.norm({NormKind::Rms, from, v, nullptr, nullptr, config_.norm_epsilon, s.kv_heads});
    p.group_norm(k, layer.k_norm);
    p.attend(layer.state, q, k, v, rope, settings, attended);
    return attended;
  }

  DecoderConfig config_;
  LayerInputs inputs_;
  Activation activation_ = Activation::GeluTanh;
  float logit_cap_ = 0;
  RopeFrequencies global_rope_, local_rope_;
  const WeightView* embedding_ = nullptr;  // [vocab, hidden]
  std::vector<Layer> layers_;
  const Vector* norm_ = nullptr;
  const Linear* head_ = nullptr;
};

}  // namespace

std::unique_ptr<Model> make_gemma4(const WeightSource& source, Weights& w, StateLayout& state) {
  return std::make_unique<Gemma4>(source, w, state);
}

}  // namespace millrace
