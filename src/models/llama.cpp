// Llama 1/2/3.x, Mistral, TinyLlama, SmolLM2: RMSNorm, rotary GQA attention, SwiGLU.
#include <cmath>

#include "models/blocks.h"
#include "models/registry.h"

namespace millrace {
namespace {

struct Layer {
  const float* attention_norm;  // [hidden]
  AttentionWeights attention;
  const float* feed_norm;  // [hidden]
  FeedForwardWeights feed;
};

// Mistral slides over its window; transformers' Llama looks at none, whatever its config has left over from elsewhere.
DecoderConfig read_config(const WeightSource& source) {
  DecoderConfig c = read_decoder_config(source);
  const bool mistral = c.architecture == "MistralForCausalLM" || c.architecture == "mistral";
  if (!is_gguf(source) && !mistral) c.window = 0;
  return c;
}

class Llama final : public Model {
 public:
  Llama(const WeightSource& source, Weights& w)
      : config_(read_config(source)),
        rope_(w.placed(read_rope_frequencies(source, config_))),
        rope_style_(is_gguf(source) ? RopeStyle::Interleaved : RopeStyle::Halves) {
    const auto& c = config_;
    activation_ = read_activation(source, "hidden_act", Activation::Silu);
    embedding_ = w.table({"token_embd.weight", "model.embed_tokens.weight"}, c.vocab, c.hidden);
    for (int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
      layers_.push_back({
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

  void forward(Pass& p) const override {
    const AttentionSettings attention{.scale = 1 / std::sqrt(float(config_.head_dim)), .window = config_.window};
    p.prepare_rope(rope_);
    p.embed(*embedding_, p.hidden);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      p.linear(p.rms_norm(p.hidden, layer.attention_norm), layer.attention.qkv, p.qkv);
      p.turn(rope_style_);
      p.attend(i, attention);
      p.add_linear(p.attended, layer.attention.out, p.hidden, {layer.feed_norm, layer.feed.gate_up});

      add_feed_forward(p, layer.feed, activation_, p.rms_norm(p.hidden, layer.feed_norm), p.hidden,
                       after_layer(layers_, i, {norm_, head_}));
    }
    p.linear_of_wanted(p.rms_norm(p.hidden, norm_), head_);
  }

 private:
  DecoderConfig config_;
  RopeFrequencies rope_;
  RopeStyle rope_style_;
  Activation activation_;
  const WeightView* embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  const float* norm_;   // [hidden]
  const Linear* head_;  // [vocab, hidden]
};

}  // namespace

std::unique_ptr<Model> make_llama(const WeightSource& source, Weights& weights) {
  return std::make_unique<Llama>(source, weights);
}

}  // namespace millrace
