// Gemma 2: norms before and after each block, soft-capped scores and logits, every other layer with a sliding window.
#include <cmath>

#include "models/blocks.h"
#include "models/registry.h"

namespace millrace {
namespace {

struct Layer {
  int window;
  const float *attention_norm, *post_attention_norm;  // [hidden]
  AttentionWeights attention;
  const float *feed_norm, *post_feed_norm;  // [hidden]
  FeedForwardWeights feed;
};

class Gemma2 final : public Model {
 public:
  Gemma2(const WeightSource& source, Weights& w)
      : config_(read_decoder_config(source)), rope_(w.placed(read_rope_frequencies(source, config_))) {
    const auto& c = config_;
    activation_ = read_activation(source, "hidden_activation", Activation::GeluTanh);
    const float one = is_gguf(source) ? 0 : 1;  // Hugging Face stores norm weights minus one
    score_scale_ = static_cast<float>(1 / std::sqrt(gemma_score_divisor(source, c, /*layers_of_27b=*/46)));
    score_cap_ = static_cast<float>(
        source.config().optional_number({"attn_logit_softcapping", "attn_logit_softcapping"}).value_or(0));
    logit_cap_ = static_cast<float>(
        source.config().optional_number({"final_logit_softcapping", "final_logit_softcapping"}).value_or(0));
    const auto windows = layer_windows(source, c, 2);
    embedding_ = w.table({"token_embd.weight", "model.embed_tokens.weight"}, c.vocab, c.hidden);
    for (int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
      layers_.push_back({
          .window = windows[static_cast<size_t>(i)],
          .attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden, one),
          .post_attention_norm =
              at.vector({"post_attention_norm.weight", "post_attention_layernorm.weight"}, c.hidden, one),
          .attention = load_attention(at, c),
          .feed_norm = at.vector({"ffn_norm.weight", "pre_feedforward_layernorm.weight"}, c.hidden, one),
          .post_feed_norm = at.vector({"post_ffw_norm.weight", "post_feedforward_layernorm.weight"}, c.hidden, one),
          .feed = load_feed_forward(at, c, activation_),
      });
    }
    norm_ = w.vector({"output_norm.weight", "model.norm.weight"}, c.hidden, one);
    head_ = load_output_head(w, c);
  }

  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return rope_.long_from; }

  std::vector<AttentionProblem> attention_problems() const override {
    auto problems = Model::attention_problems();
    for (size_t i = 0; i < layers_.size(); ++i) {
      problems[i].window = layers_[i].window;
      problems[i].softcap = score_cap_ != 0;
    }
    return problems;
  }

  void forward(Pass& p) const override {
    p.prepare_rope(rope_);
    p.embed(*embedding_, p.hidden, std::sqrt(float(config_.hidden)));
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      p.rms_norm(p.hidden, layer.attention_norm, p.normed);
      p.linear(p.normed, layer.attention.qkv, p.qkv);
      p.turn(RopeStyle::Halves);
      p.attend(i, {.scale = score_scale_, .softcap = score_cap_, .window = layer.window});
      p.linear(p.attended, layer.attention.out, p.residual);
      p.rms_norm(p.residual, layer.post_attention_norm, p.residual);
      p.ops.add(p.hidden, p.residual, p.hidden);

      p.rms_norm(p.hidden, layer.feed_norm, p.normed);
      feed_forward(p, layer.feed, activation_, p.normed, p.residual);
      p.rms_norm(p.residual, layer.post_feed_norm, p.residual);
      p.ops.add(p.hidden, p.residual, p.hidden);
    }
    p.linear_of_wanted(p.rms_norm(p.hidden, norm_), head_);
    if (logit_cap_ != 0) p.ops.softcap(p.logits, logit_cap_);
  }

 private:
  DecoderConfig config_;
  RopeFrequencies rope_;
  float score_scale_, score_cap_, logit_cap_;
  Activation activation_;
  const WeightView* embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  const float* norm_;   // [hidden]
  const Linear* head_;  // [vocab, hidden]
};

}  // namespace

std::unique_ptr<Model> make_gemma2(const WeightSource& source, Weights& weights) {
  return std::make_unique<Gemma2>(source, weights);
}

}  // namespace millrace
