// OPT: learned positions, LayerNorm with biases, a feed-forward without a gate. Exists in Hugging Face's form only.
#include <cmath>

#include "models/blocks.h"
#include "models/registry.h"

namespace millrace {
namespace {

constexpr int32_t kPositionOffset = 2;  // the first two rows of the position table stand for padding

struct LayerNormWeights {
  const float *weight, *bias;  // [hidden]
};

struct Layer {
  LayerNormWeights attention_norm;
  AttentionWeights attention;
  LayerNormWeights feed_norm;
  const Linear* up;    // [feed_forward, hidden]
  const Linear* down;  // [hidden, feed_forward]
};

DecoderConfig read_config(const WeightSource& source) {
  DecoderConfig c = read_decoder_config(source, {.feed_forward = "ffn_dim"});
  c.norm_epsilon = 1e-5f;
  c.rotary_dim = 0;
  c.learned_positions = true;
  return c;
}

class Opt final : public Model {
 public:
  Opt(const WeightSource& source, Weights& w) : config_(read_config(source)) {
    const auto& c = config_;
    const Config& keys = source.config();
    activation_ = read_activation(source, "activation_function", Activation::Relu);
    norm_first_ = keys.optional_boolean({.hf = "do_layer_norm_before"}).value_or(true);
    embedded_ = keys.optional_integer({.hf = "word_embed_proj_dim"}, {1, 1 << 20}).value_or(c.hidden);
    const TensorName embedding{"", "model.decoder.embed_tokens.weight"};
    embedding_ = w.table(embedding, c.vocab, embedded_);
    positions_ = w.table({"", "model.decoder.embed_positions.weight"}, c.context + kPositionOffset, c.hidden);
    if (embedded_ != c.hidden) {
      project_in_ = w.linear({{{"", "model.decoder.project_in.weight"}, c.hidden}}, embedded_);
      project_out_ = w.linear({{{"", "model.decoder.project_out.weight"}, embedded_}}, c.hidden);
    }
    for (int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer at(w, i, {"", "model.decoder.layers.{}."});
      layers_.push_back({
          .attention_norm = {at.optional_vector({"", "self_attn_layer_norm.weight"}, c.hidden),
                             at.optional_vector({"", "self_attn_layer_norm.bias"}, c.hidden)},
          .attention = {.qkv = at.linear({{{"", "self_attn.q_proj.weight"}, c.q_dim()},
                                          {{"", "self_attn.k_proj.weight"}, c.kv_dim()},
                                          {{"", "self_attn.v_proj.weight"}, c.kv_dim()}},
                                         c.hidden),
                        .out = at.linear({{{"", "self_attn.out_proj.weight"}, c.hidden}}, c.q_dim())},
          .feed_norm = {at.optional_vector({"", "final_layer_norm.weight"}, c.hidden),
                        at.optional_vector({"", "final_layer_norm.bias"}, c.hidden)},
          .up = at.linear({{{"", "fc1.weight"}, c.feed_forward}}, c.hidden),
          .down = at.linear({{{"", "fc2.weight"}, c.hidden}}, c.feed_forward),
      });
    }
    final_norm_ = norm_first_ && !keys.optional_boolean({.hf = "_remove_final_layer_norm"}).value_or(false);
    norm_ = {w.optional_vector({"", "model.decoder.final_layer_norm.weight"}, c.hidden),
             w.optional_vector({"", "model.decoder.final_layer_norm.bias"}, c.hidden)};
    head_ = w.linear({{output_head_name(w, {"", "lm_head.weight"}, embedding), c.vocab}}, embedded_);
  }

  const DecoderConfig& config() const override { return config_; }

  PassWidths widths() const override {
    PassWidths widths = common_widths(config_);
    widths.gate_up = std::max(config_.feed_forward, embedded_);
    return widths;
  }

  void forward(Pass& p) const override {
    embed(p);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      p.linear(norm_before(p, layer.attention_norm), layer.attention.qkv, p.qkv);
      p.attend(i, {.scale = 1 / std::sqrt(float(config_.head_dim))});
      p.add_linear(p.attended, layer.attention.out, p.hidden);
      norm_after(p, layer.attention_norm);

      p.linear(norm_before(p, layer.feed_norm), layer.up, p.feed);
      p.ops.activate(activation_, p.feed, nullptr, p.feed);
      p.add_linear(p.feed, layer.down, p.hidden);
      norm_after(p, layer.feed_norm);
    }
    Matrix last = p.last;
    if (final_norm_) {
      p.layer_norm(p.hidden, norm_.weight, norm_.bias, last);
    } else {
      p.ops.copy(p.hidden, last);
    }
    if (project_out_ != nullptr) {
      const Matrix projected = p.gate_up.first_rows(last.rows).columns(0, embedded_);
      p.linear(last, project_out_, projected);
      last = projected;
    }
    p.linear(last, head_, p.logits);
  }

 private:
  void embed(Pass& p) const {
    if (project_in_ != nullptr) {
      const Matrix small = p.gate_up.columns(0, embedded_);
      p.embed(*embedding_, small);
      p.linear(small, project_in_, p.hidden);
    } else {
      p.embed(*embedding_, p.hidden);
    }
    WeightView table = *positions_;  // from the row of position 0 on
    table.data = positions_->row(kPositionOffset);
    table.rows -= kPositionOffset;
    p.ops.embed({.table = table, .ids = p.positions, .accumulate = true, .out = p.hidden});
  }

  // The 350M normalises after each block instead of before it.
  Matrix norm_before(Pass& p, const LayerNormWeights& norm) const {
    if (norm_first_) {
      p.layer_norm(p.hidden, norm.weight, norm.bias, p.normed);
    } else {
      p.ops.copy(p.hidden, p.normed);  // linear layers are planned for its type
    }
    return p.normed;
  }
  void norm_after(Pass& p, const LayerNormWeights& norm) const {
    if (!norm_first_) p.layer_norm(p.hidden, norm.weight, norm.bias, p.hidden);
  }

  DecoderConfig config_;
  Activation activation_;
  bool norm_first_, final_norm_;
  int64_t embedded_;                     // width of the embedding, where it differs from the layers'
  const WeightView* embedding_;          // [vocab, embedded]
  const WeightView* positions_;          // [context + 2, hidden]
  const Linear* project_in_ = nullptr;   // [hidden, embedded]
  const Linear* project_out_ = nullptr;  // [embedded, hidden]
  std::vector<Layer> layers_;
  LayerNormWeights norm_;
  const Linear* head_;  // [vocab, embedded]
};

}  // namespace

std::unique_ptr<Model> make_opt(const WeightSource& source, Weights& weights) {
  return std::make_unique<Opt>(source, weights);
}

}  // namespace millrace
