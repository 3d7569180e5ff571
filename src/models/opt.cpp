// OPT: learned positions, LayerNorm with biases, feed-forward without gate. Hugging Face folders only: GGUF does not
// have this architecture.
#include <cmath>

#include "models/blocks.h"
#include "models/model.h"
#include "models/registry.h"

namespace millrace {
namespace {

constexpr int32_t kPositionOffset = 2;  // the first two rows of the position table are padding

struct LayerNormWeights {
  const Vector *weight, *bias;  // [hidden]
};

struct Layer {
  LayerNormWeights attention_norm;
  AttentionWeights attention;
  LayerNormWeights feed_norm;
  const Linear* up;    // [feed_forward, hidden]
  const Linear* down;  // [hidden, feed_forward]
  int state;           // paged state of its keys and values
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
  Opt(const WeightSource& source, Weights& w, StateLayout& state) : config_(read_config(source)) {
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
          .state = state.paged({c.kv_heads, c.head_dim, c.head_dim}),
      });
    }
    final_norm_ = norm_first_ && !keys.optional_boolean({.hf = "_remove_final_layer_norm"}).value_or(false);
    norm_ = {w.optional_vector({"", "model.decoder.final_layer_norm.weight"}, c.hidden),
             w.optional_vector({"", "model.decoder.final_layer_norm.bias"}, c.hidden)};
    head_ = w.linear({{output_head_name(w, {"", "lm_head.weight"}, embedding), c.vocab}}, embedded_);
  }

  const DecoderConfig& config() const override { return config_; }

  void forward(Pass& p) const override {
    const DecoderConfig& c = config_;
    const AttentionSettings settings{.heads = c.heads, .scale = 1 / std::sqrt(float(c.head_dim))};
    Matrix hidden = embed(p);
    for (const Layer& layer : layers_) {
      const Matrix qkv = p.buffer("qkv", c.qkv_dim());
      Matrix attended = p.buffer("attended", c.q_dim());
      p.linear(norm_before(p, hidden, layer.attention_norm), layer.attention.qkv, qkv);
      p.attend(layer.state, qkv.columns(0, c.q_dim()), qkv.columns(c.q_dim(), c.kv_dim()),
               qkv.columns(c.q_dim() + c.kv_dim(), c.kv_dim()), {}, settings, attended);
      if (&layer == &layers_.back()) p.narrow({&hidden, &attended});
      p.add_linear(attended, layer.attention.out, hidden);
      norm_after(p, hidden, layer.attention_norm);

      const Matrix feed = p.buffer("feed", c.feed_forward);
      p.linear(norm_before(p, hidden, layer.feed_norm), layer.up, feed);
      p.ops.activate(activation_, feed, nullptr, feed);
      p.add_linear(feed, layer.down, hidden);
      norm_after(p, hidden, layer.feed_norm);
    }
    p.last = p.buffer("last", c.hidden);
    if (final_norm_) {
      p.layer_norm(hidden, norm_.weight, norm_.bias, p.last);
    } else {
      p.ops.copy(hidden, p.last);
    }
    if (project_out_ == nullptr) return p.head(p.last, head_);
    const Matrix projected = p.buffer("projected", embedded_);
    p.linear(p.last, project_out_, projected);
    p.head(projected, head_);
  }

 private:
  Matrix embed(Pass& p) const {
    Matrix hidden;
    if (project_in_ != nullptr) {
      const Matrix embedded = p.buffer("projected", embedded_);
      p.ops.embed({.table = *embedding_, .ids = p.batch.tokens, .out = embedded, .chosen = p.batch.chosen});
      hidden = p.buffer("hidden", DType::F32, p.rows(), config_.hidden);
      p.linear(embedded, project_in_, hidden);
    } else {
      hidden = p.embed(*embedding_);
    }
    WeightView table = *positions_;  // begins at the row of position 0
    table.data = positions_->row(kPositionOffset);
    table.rows -= kPositionOffset;
    p.ops.embed({.table = table, .ids = p.batch.positions, .accumulate = true, .out = hidden});
    return hidden;
  }

  // The 350M has its norms after the blocks instead of before them.
  Matrix norm_before(Pass& p, Matrix hidden, const LayerNormWeights& norm) const {
    const Matrix normed = p.buffer("normed", hidden.cols);
    if (norm_first_) {
      p.layer_norm(hidden, norm.weight, norm.bias, normed);
    } else {
      p.ops.copy(hidden, normed);  // linear layers take the working type
    }
    return normed;
  }
  void norm_after(Pass& p, Matrix hidden, const LayerNormWeights& norm) const {
    if (!norm_first_) p.layer_norm(hidden, norm.weight, norm.bias, hidden);
  }

  DecoderConfig config_;
  Activation activation_;
  bool norm_first_, final_norm_;
  int64_t embedded_;                     // embedding width; the 350M's differs from the hidden size
  const WeightView* embedding_;          // [vocab, embedded]
  const WeightView* positions_;          // [context + 2, hidden]
  const Linear* project_in_ = nullptr;   // [hidden, embedded]
  const Linear* project_out_ = nullptr;  // [embedded, hidden]
  std::vector<Layer> layers_;
  LayerNormWeights norm_;
  const Linear* head_;  // [vocab, embedded]
};

}  // namespace

std::unique_ptr<Model> make_opt(const WeightSource& source, Weights& weights, StateLayout& state) {
  return std::make_unique<Opt>(source, weights, state);
}

}  // namespace millrace
