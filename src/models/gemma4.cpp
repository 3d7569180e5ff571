// Gemma 4 (text, dense). Layers with a window and layers without differ in head size, KV heads and rope. The last
// layers may use keys and values of earlier layers. Each layer may have an input of its own from a second embedding
// table, and a factor on the residual stream.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/blocks.h"
#include "models/model.h"
#include "models/registry.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr int64_t kMostHeadDim = 1 << 12;

// The sizes of one layer, from the config.
struct LayerShape {
  int head_dim = 0, kv_heads = 0, window = 0;
  int64_t feed_forward = 0;
  int64_t keys_of = 0;  // the layer that stores its keys and values
};

struct Layer {
  LayerShape shape;
  const Vector *attention_norm, *post_attention_norm, *feed_norm, *post_feed_norm;  // [hidden]
  const Linear* qkv;              // q, k and v; q and k if values are keys; only q if another layer stores them
  const Linear* out;              // [hidden, heads * head_dim]
  const Vector *q_norm, *k_norm;  // [head_dim]; k_norm is null if another layer stores the keys
  FeedForwardWeights feed;
  const Linear* input_gate = nullptr;  // [input, hidden]; null: no input of its own
  const Linear* input_out = nullptr;   // [hidden, input]
  const Vector* input_norm = nullptr;  // [hidden]
  int state = 0;
  float scale = 1;  // of the residual stream after the layer
};

// The value of layer i of a GGUF key that holds one number or one per layer.
std::optional<int64_t> by_layer(const Config& keys, std::string_view name, int64_t i, int64_t most) {
  const ConfigKey key{.gguf = name};
  if (!keys.has_list(key)) return keys.optional_integer(key, {1, most});
  const auto list = keys.array<int64_t>(key);
  if (i >= std::ssize(list) || list[static_cast<size_t>(i)] < 1 || list[static_cast<size_t>(i)] > most)
    keys.fail_key(key, "must have a plausible number for every layer");
  return list[static_cast<size_t>(i)];
}

// Newer Hugging Face configs list what differs by layer, older ones have a second key for layers without window.
LayerShape hf_shape(const Config& keys, const DecoderConfig& c, int64_t i, bool full) {
  const auto of_layer = [&](const char* name, const char* global, int64_t most) -> std::optional<int64_t> {
    const std::string path = fmt::format("per_layer_config.{}.{}", i, name);
    if (keys.has({.hf = "per_layer_config"})) return keys.optional_integer({.hf = path}, {1, most});
    return full && *global ? keys.optional_integer({.hf = global}, {1, most}) : std::nullopt;
  };
  const bool listed = keys.has({.hf = "per_layer_config"});
  const bool keys_are_values = keys.optional_boolean({.hf = "attention_k_eq_v"}).value_or(false);
  LayerShape shape;
  shape.head_dim = static_cast<int>(
      of_layer("head_dim", "global_head_dim", kMostHeadDim).value_or(full && !listed ? 512 : c.head_dim));
  shape.kv_heads =
      static_cast<int>(of_layer("num_key_value_heads", keys_are_values ? "num_global_key_value_heads" : "", c.heads)
                           .value_or(c.kv_heads));
  shape.feed_forward = c.feed_forward;
  return shape;
}

LayerShape gguf_shape(const Config& keys, const DecoderConfig& c, int64_t i, bool full) {
  LayerShape shape;
  const auto windowed = keys.optional_integer({.gguf = "attention.key_length_swa"}, {1, kMostHeadDim});
  shape.head_dim = full ? c.head_dim : static_cast<int>(windowed.value_or(c.head_dim));
  shape.kv_heads = static_cast<int>(by_layer(keys, "attention.head_count_kv", i, c.heads).value_or(c.kv_heads));
  shape.feed_forward = by_layer(keys, "feed_forward_length", i, 1 << 22).value_or(c.feed_forward);
  return shape;
}

std::vector<LayerShape> read_shapes(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const ConfigKey shared_key{"num_kv_shared_layers", "attention.shared_kv_layers"};
  const int64_t own = c.layers - keys.optional_integer(shared_key, {0, c.layers - 1}).value_or(0);
  const bool double_wide = keys.optional_boolean({.hf = "use_double_wide_mlp"}).value_or(false);
  auto windows = layer_windows(source, c, 6);
  windows.back() = 0;  // as transformers does
  std::vector<LayerShape> shapes;
  for (int64_t i = 0; i < c.layers; ++i) {
    const int window = windows[static_cast<size_t>(i)];
    LayerShape& shape =
        shapes.emplace_back(is_gguf(source) ? gguf_shape(keys, c, i, window == 0) : hf_shape(keys, c, i, window == 0));
    shape.window = window;
    shape.keys_of = i;
    if (i >= own) {
      if (double_wide) shape.feed_forward *= 2;
      for (shape.keys_of = own - 1; shape.keys_of >= 0; --shape.keys_of) {
        if (windows[static_cast<size_t>(shape.keys_of)] == window) break;
      }
      if (shape.keys_of < 0) keys.fail_key(shared_key, "leaves no layer that stores keys for the others");
      const LayerShape& storing = shapes[static_cast<size_t>(shape.keys_of)];
      if (storing.head_dim != shape.head_dim) refuse(source, "a layer that shares keys of another head size");
      shape.kv_heads = storing.kv_heads;
    }
    if (c.heads % shape.kv_heads != 0) refuse(source, "KV heads that do not divide the heads");
    for (const LayerShape& other : shapes) {
      if (other.window == window && other.head_dim != shape.head_dim)
        refuse(source, "several head sizes among layers with one kind of attention");
    }
  }
  return shapes;
}

// "proportional": the first pairs of a head rotate at the frequencies of the whole head, the others do not.
RopeFrequencies read_global_rope(const WeightSource& source, DecoderConfig c, int head_dim) {
  c.head_dim = c.rotary_dim = head_dim;
  if (is_gguf(source)) return read_rope_frequencies(source, c);  // divisors in rope_freqs.weight
  const Config& keys = source.config();
  const std::string section = "rope_parameters.full_attention.";
  const auto number = [&](const char* name, double usual) {
    return keys.optional_number({.hf = section + name}).value_or(usual);
  };
  const bool given = keys.has({.hf = "rope_parameters.full_attention"});
  const std::string type =
      keys.optional_string({.hf = section + "rope_type"}).value_or(given ? "default" : "proportional");
  const double theta = number("rope_theta", 1e6), factor = number("factor", 1);
  const double part = type == "proportional" ? number("partial_rotary_factor", given ? 1 : 0.25) : 1;
  if (type != "proportional" && type != "default") refuse(source, "rope type '" + type + "' in Gemma 4");
  if (!(theta > 0) || !(factor > 0) || !(part >= 0 && part <= 1))
    keys.fail_key({.hf = "rope_parameters.full_attention"}, "has an implausible number");
  RopeFrequencies rope = plain_rope_frequencies(theta, head_dim);
  const auto rotating = static_cast<size_t>(part * head_dim / 2);
  for (size_t i = 0; i < rope.inverse.size(); ++i)
    rope.inverse[i] = i < rotating ? static_cast<float>(rope.inverse[i] / factor) : 0;
  return rope;
}

RopeFrequencies read_local_rope(const WeightSource& source, int head_dim) {
  const Config& keys = source.config();
  const auto type = keys.optional_string({.hf = "rope_parameters.sliding_attention.rope_type"});
  if (type && *type != "default") refuse(source, "rope type '" + *type + "' on windowed layers");
  const double theta =
      keys.optional_number({"rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa"}).value_or(1e4);
  if (!(theta > 0))
    keys.fail_key({"rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa"}, "must be positive");
  const auto rotary = keys.optional_integer({.gguf = "rope.dimension_count_swa"}, {2, head_dim}).value_or(head_dim);
  return plain_rope_frequencies(theta, static_cast<int>(rotary));
}

float read_layer_scale(const WeightSource& source, const std::string& name) {
  if (source.find(name) == nullptr) return 1;
  const int64_t shape[] = {1};
  const WeightView view = source.tensor(name, shape);
  float value = 1;
  dequantize_row(view.dtype, view.data, &value, 1);
  return value;
}

class Gemma4 final : public Model {
 public:
  Gemma4(const WeightSource& source, Weights& w, StateLayout& state)
      : config_(read_decoder_config(source, {.usual_heads = 8,
                                             .usual_kv_heads = 4,
                                             .usual_head_dim = 256,
                                             .usual_context = 131072,
                                             .usual_vocab = 262144})) {
    const DecoderConfig& c = config_;
    const Config& keys = source.config();
    refuse_the_unknown(source);
    for (const char* media : {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."}) w.ignore(media);
    for (const char* scale : {"layer_scalar", "layer_output_scale"}) w.ignore(scale);  // read_layer_scale
    activation_ = read_activation(source, "hidden_activation", Activation::GeluTanh);
    logit_cap_ = float(keys.optional_number({"final_logit_softcapping", "final_logit_softcapping"}).value_or(0));
    input_ = keys.optional_integer({"hidden_size_per_layer_input", "embedding_length_per_layer_input"}, {0, 1 << 16})
                 .value_or(0);
    const std::string hf = text_model_prefix(source);
    const std::vector<LayerShape> shapes = read_shapes(source, c);
    global_rope_ = w.placed(read_global_rope(source, c, shapes.back().head_dim));
    for (int64_t i = 0; i < c.layers; ++i) {
      const LayerShape& shape = shapes[static_cast<size_t>(i)];
      if (shape.window > 0 && local_rope_.table == nullptr)
        local_rope_ = w.placed(read_local_rope(source, shape.head_dim));
      layers_.push_back(load_layer(source, w, state, i, shape, hf));
    }
    const TensorName embedding{"token_embd.weight", hf + "embed_tokens.weight"};
    embedding_ = w.table(embedding, c.vocab, c.hidden);
    if (input_ > 0) load_inputs(source, w, hf);
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
    const Matrix inputs = input_ > 0 ? layer_inputs(p, hidden) : Matrix();
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      Matrix attended =
          attend(p, layer, p.rms_norm(hidden, layer.attention_norm), layer.shape.window > 0 ? local : global);
      Matrix input = input_ > 0 ? inputs.columns(static_cast<int64_t>(i) * input_, input_) : hidden;
      if (i + 1 == layers_.size()) {
        if (input_ > 0) {
          p.narrow({&hidden, &attended, &input});
        } else {
          p.narrow({&hidden, &attended});
        }
      }
      add_block(p, attended, layer.out, layer.post_attention_norm, hidden);
      const Matrix feed = p.gated_linear(p.rms_norm(hidden, layer.feed_norm), layer.feed.gate_up, activation_);
      add_block(p, feed, layer.feed.down, layer.post_feed_norm, hidden);
      if (layer.input_gate != nullptr) add_input(p, layer, input, hidden);
      if (layer.scale != 1) p.ops.scale(hidden, layer.scale);
    }
    p.head(p.rms_norm(hidden, norm_), head_);
    if (logit_cap_ != 0) p.ops.softcap(p.logits, logit_cap_);
  }

 private:
  static void refuse_the_unknown(const WeightSource& source) {
    const Config& keys = source.config();
    const bool experts = keys.optional_boolean({.hf = "enable_moe_block"}).value_or(false) ||
                         keys.optional_integer({.gguf = "expert_count"}).value_or(0) > 0;
    if (experts) refuse(source, "Gemma 4 with experts (enable_moe_block)");
    if (keys.optional_string({.hf = "use_bidirectional_attention"}).value_or("") == "all")
      refuse(source, "attention in both directions");
  }

  void load_inputs(const WeightSource& source, Weights& w, const std::string& hf) {
    const DecoderConfig& c = config_;
    const TensorName table{"per_layer_token_embd.weight", hf + "embed_tokens_per_layer.weight"};
    const auto* found = source.find(is_gguf(source) ? table.gguf : table.hf);
    const ConfigKey key{.hf = "vocab_size_per_layer_input"};
    int64_t rows = source.config().optional_integer(key, {1, 1 << 24}).value_or(262144);
    if (is_gguf(source) && found != nullptr && found->shape.size() == 2) rows = found->shape[0];
    if (rows < c.vocab) refuse(source, "a vocab_size_per_layer_input below vocab_size");
    input_table_ = w.table(table, rows, c.layers * input_);
    input_projection_ = w.linear(
        {{{"per_layer_model_proj.weight", hf + "per_layer_model_projection.weight"}, c.layers * input_}}, c.hidden);
    input_norm_ = w.vector({"per_layer_proj_norm.weight", hf + "per_layer_projection_norm.weight"}, input_);
  }

  Layer load_layer(const WeightSource& source, Weights& w, StateLayout& state, int64_t i, const LayerShape& shape,
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
    if (input_ > 0) {
      layer.input_gate = at.linear({{{"inp_gate.weight", "per_layer_input_gate.weight"}, input_}}, c.hidden);
      layer.input_out = at.linear({{{"proj.weight", "per_layer_projection.weight"}, c.hidden}}, input_);
      layer.input_norm = norm({"post_norm.weight", "post_per_layer_input_norm.weight"});
    }
    layer.scale = read_layer_scale(source, is_gguf(source) ? fmt::format("blk.{}.layer_output_scale.weight", i)
                                                           : fmt::format("{}layers.{}.layer_scalar", hf, i));
    return layer;
  }

  // sqrt(2) times the inputs of all layers, [rows, layers * input]; the norm in add_input() removes the factor. Instead
  // of dividing the projection by sqrt(hidden), its norm has another epsilon.
  Matrix layer_inputs(Pass& p, Matrix hidden) const {
    const Matrix inputs = p.buffer("layer inputs", DType::F32, p.rows(), config_.layers * input_);
    p.linear(p.rms_norm(hidden, nullptr), input_projection_, inputs);
    p.ops.norm({NormKind::Rms, inputs, inputs, input_norm_->data, nullptr,
                config_.norm_epsilon * static_cast<float>(config_.hidden), static_cast<int>(config_.layers)});
    p.ops.embed({.table = *input_table_,
                 .ids = p.batch.tokens,
                 .scale = std::sqrt(float(input_)),
                 .accumulate = true,
                 .out = inputs,
                 .chosen = p.batch.chosen});
    return inputs;
  }

  // The factor sqrt(2) of `input` doubles the epsilon.
  void add_input(Pass& p, const Layer& layer, Matrix input, Matrix hidden) const {
    const Matrix gate = p.buffer("input gate", p.ops.working(), hidden.rows, input_);
    p.linear(p.rms_norm(hidden, nullptr), layer.input_gate, gate);
    p.ops.activate(activation_, gate, &input, gate);
    const Matrix branch = p.buffer("branch", DType::F32, hidden.rows, hidden.cols);
    p.linear(gate, layer.input_out, branch);
    NormOp::Args norm{NormKind::Rms, branch, hidden, layer.input_norm->data, nullptr, 2 * config_.norm_epsilon};
    norm.accumulate = true;
    p.ops.norm(norm);
  }

  Matrix attend(Pass& p, const Layer& layer, const Normed& x, const Rope& rope) const {
    const LayerShape& s = layer.shape;
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
  Activation activation_ = Activation::GeluTanh;
  float logit_cap_ = 0;
  int64_t input_ = 0;  // width of a layer's own input; 0: none
  RopeFrequencies global_rope_, local_rope_;
  const WeightView* embedding_ = nullptr;     // [vocab, hidden]
  const WeightView* input_table_ = nullptr;   // [vocab, layers * input]
  const Linear* input_projection_ = nullptr;  // [layers * input, hidden]
  const Vector* input_norm_ = nullptr;        // [input]
  std::vector<Layer> layers_;
  const Vector* norm_ = nullptr;
  const Linear* head_ = nullptr;
};

}  // namespace

std::unique_ptr<Model> make_gemma4(const WeightSource& source, Weights& w, StateLayout& state) {
  return std::make_unique<Gemma4>(source, w, state);
}

}  // namespace millrace
