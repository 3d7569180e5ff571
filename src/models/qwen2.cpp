// Qwen 2 and 2.5: as Llama, with biases on q, k and v, and a sliding window on the upper layers where a config asks for
// it.
#include <algorithm>
#include <cmath>

#include "models/blocks.h"
#include "models/registry.h"

namespace millrace {
namespace {

struct Layer {
  int window;
  const float* attention_norm;  // [hidden]
  AttentionWeights attention;
  const float* feed_norm;  // [hidden]
  FeedForwardWeights feed;
};

class Qwen2 final : public Model {
 public:
  Qwen2(const WeightSource& source, Weights& w)
      : config_(read_decoder_config(source)), rope_(w.placed(read_rope_frequencies(source, config_))) {
    const auto& c = config_;
    activation_ = read_activation(source, "hidden_act", Activation::Silu);
    const auto windows = upper_layer_windows(source, c);
    config_.window = *std::max_element(windows.begin(), windows.end());  // one that is named need not be used
    embedding_ = w.table({"token_embd.weight", "model.embed_tokens.weight"}, c.vocab, c.hidden);
    for (int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
      layers_.push_back({
          .window = windows[static_cast<size_t>(i)],
          .attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden),
          .attention = load_attention(at, c),
          .feed_norm = at.vector({"ffn_norm.weight", "post_attention_layernorm.weight"}, c.hidden),
          .feed = load_feed_forward(at, c, activation_),
      });
    }
    norm_ = w.vector({"output_norm.weight", "model.norm.weight"}, c.hidden);
    head_ = load_output_head(w, c);
  }

  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return rope_.long_from; }

  std::vector<AttentionProblem> attention_problems() const override {
    auto problems = Model::attention_problems();
    for (size_t i = 0; i < layers_.size(); ++i) problems[i].window = layers_[i].window;
    return problems;
  }

  void forward(Pass& p) const override {
    const float scale = 1 / std::sqrt(float(config_.head_dim));
    p.prepare_rope(rope_);
    p.embed(*embedding_, p.hidden);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      p.linear(p.rms_norm(p.hidden, layer.attention_norm), layer.attention.qkv, p.qkv);
      p.turn(RopeStyle::Halves);
      p.attend(i, {.scale = scale, .window = layer.window});
      p.add_linear(p.attended, layer.attention.out, p.hidden, {layer.feed_norm, layer.feed.gate_up});

      add_feed_forward(p, layer.feed, activation_, p.rms_norm(p.hidden, layer.feed_norm), p.hidden,
                       after_layer(layers_, i, {norm_, head_}));
    }
    p.linear_of_wanted(p.rms_norm(p.hidden, norm_), head_);
  }

 private:
  DecoderConfig config_;
  RopeFrequencies rope_;
  Activation activation_;
  const WeightView* embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  const float* norm_;   // [hidden]
  const Linear* head_;  // [vocab, hidden]
};

}  // namespace

std::unique_ptr<Model> make_qwen2(const WeightSource& source, Weights& weights) {
  return std::make_unique<Qwen2>(source, weights);
}

}  // namespace millrace
