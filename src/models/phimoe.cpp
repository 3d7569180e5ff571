// Phi-3.5-MoE: LayerNorm with biases, longrope with magnitudes of its own, and two experts whose choice and weights
// come from SparseMixer.
#include <cmath>

#include "models/experts.h"
#include "models/model.h"
#include "models/registry.h"

namespace millrace {
namespace {

struct LayerNormVectors {
  const Vector *weight, *bias;  // [hidden]
};

struct Layer {
  LayerNormVectors attention_norm;
  AttentionWeights attention;
  LayerNormVectors feed_norm;
  Experts experts;
  int state;  // paged state of its keys and values
};

DecoderConfig read_config(const WeightSource& source) {
  DecoderConfig c = read_decoder_config(source, {.usual_epsilon = 1e-5});
  read_mixture_config(source, c, {.experts = 16, .per_row = 2});
  c.expert_width = c.feed_forward;
  if (c.experts_per_row != 2) refuse(source, "SparseMixer with other than two experts per token");
  if (c.experts < 2) refuse(source, "SparseMixer with one expert");
  return c;
}

// transformers applies the short factors at every length. Only the magnitude depends on the length.
RopeFrequencies read_rope(const WeightSource& source, const DecoderConfig& c) {
  RopeFrequencies rope = read_rope_frequencies(source, c, "", 1e6);
  if (rope.long_from == 0) return rope;
  const Config& keys = source.config();
  rope.inverse_long = rope.inverse;
  rope.magnitude =
      static_cast<float>(keys.optional_number({.hf = "rope_parameters.short_mscale"}).value_or(double(rope.magnitude)));
  rope.magnitude_long = static_cast<float>(
      keys.optional_number({.hf = "rope_parameters.long_mscale"}).value_or(double(rope.magnitude_long)));
  return rope;
}

class Phimoe final : public Model {
 public:
  Phimoe(const WeightSource& source, Weights& w, StateLayout& state) : config_(read_config(source)) {
    const DecoderConfig& c = config_;
    activation_ = read_activation(source, "hidden_act", Activation::Silu);
    rope_ = w.placed(read_rope(source, c));
    const double jitter = source.config().optional_number({.hf = "router_jitter_noise"}).value_or(0.01);
    const RouterSettings router{.scoring = Scoring::SparseMixer, .margin = static_cast<float>(2 * jitter)};
    const auto norm = [&](auto& at, const std::string& gguf, const std::string& hf) {
      return LayerNormVectors{at.vector({gguf + ".weight", hf + ".weight"}, c.hidden),
                              at.vector({gguf + ".bias", hf + ".bias"}, c.hidden)};
    };
    for (int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
      layers_.push_back({.attention_norm = norm(at, "attn_norm", "input_layernorm"),
                         .attention = load_attention(at, c),
                         .feed_norm = norm(at, "ffn_norm", "post_attention_layernorm"),
                         .experts = load_experts(at, c, router, activation_),
                         .state = state.paged({c.kv_heads, c.head_dim, c.head_dim})});
    }
    const TensorName table{"token_embd.weight", "model.embed_tokens.weight"};
    embedding_ = w.table(table, c.vocab, c.hidden);
    norm_ = norm(w, "output_norm", "model.norm");
    const bool biased = source.config().optional_boolean({.hf = "lm_head_bias"}).value_or(false);
    if (biased && !is_gguf(source)) w.require({"", "lm_head.bias"});
    head_ = load_output_head(w, c, {"output.weight", "lm_head.weight"}, table);
  }

  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return rope_.long_from; }

  void forward(Pass& p) const override {
    const AttentionSettings settings{
        .heads = config_.heads, .scale = 1 / std::sqrt(float(config_.head_dim)), .window = config_.window};
    const Rope rope = p.rope(rope_, RopeStyle::Halves);
    Matrix hidden = p.embed(*embedding_);
    for (const Layer& layer : layers_) {
      const Normed x = normed(p, hidden, layer.attention_norm);
      Matrix attended = attention_block(p, layer.attention, x, layer.state, rope, settings);
      if (&layer == &layers_.back()) p.narrow({&hidden, &attended});
      p.add_linear(attended, layer.attention.out, hidden);
      add_experts(p, layer.experts, normed(p, hidden, layer.feed_norm), activation_, hidden);
    }
    p.last = p.buffer("last", config_.hidden);
    p.layer_norm(hidden, norm_.weight, norm_.bias, p.last);
    p.head(p.last, head_);
  }

 private:
  static Normed normed(Pass& p, Matrix hidden, const LayerNormVectors& norm) {
    const Matrix out = p.buffer("normed", hidden.cols);
    p.layer_norm(hidden, norm.weight, norm.bias, out);
    return {out, nullptr};
  }

  DecoderConfig config_;
  Activation activation_;
  RopeFrequencies rope_;
  const WeightView* embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  LayerNormVectors norm_;
  const Linear* head_;  // [vocab, hidden]
};

}  // namespace

std::unique_ptr<Model> make_phimoe(const WeightSource& source, Weights& w, StateLayout& state) {
  return std::make_unique<Phimoe>(source, w, state);
}

}  // namespace millrace
