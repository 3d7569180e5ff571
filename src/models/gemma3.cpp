// Gemma 3 (text): as Gemma 2 without soft caps, with norms of q and k, and two ropes: most layers slide over a window
// with the local one, every sixth sees everything with the global one.
#include <cmath>

#include "models/blocks.h"
#include "models/registry.h"

namespace millrace {
namespace {

struct Layer {
  int window;
  const float *attention_norm, *post_attention_norm;  // [hidden]
  AttentionWeights attention;
  const float *q_norm, *k_norm;             // [head_dim]
  const float *feed_norm, *post_feed_norm;  // [hidden]
  FeedForwardWeights feed;
};

// Models that also see images keep their text part below another name, which changed between versions.
std::string hf_prefix(const WeightSource& source) {
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    if (source.find(std::string(prefix) + "embed_tokens.weight") != nullptr) return prefix;
  }
  return "model.";
}

// The published configs name only what differs between sizes.
constexpr DecoderKeys kKeys{
    .usual_heads = 8, .usual_kv_heads = 4, .usual_head_dim = 256, .usual_context = 131072, .usual_vocab = 262208};
constexpr double kGlobalTheta = 1e6;

enum Rope { kGlobal = 0, kLocal = 1 };

class Gemma3 final : public Model {
 public:
  Gemma3(const WeightSource& source, Weights& w)
      : config_(read_decoder_config(source, kKeys)),
        global_rope_(w.placed(read_rope_frequencies(source, config_, "full_attention", kGlobalTheta))) {
    const auto& c = config_;
    activation_ = read_activation(source, "hidden_activation", Activation::GeluTanh);
    const auto& keys = source.config();
    if (keys.optional_boolean({.hf = "use_bidirectional_attention"}).value_or(false))
      refuse(source, "attention in both directions (an embedding model)");
    local_rope_ = w.placed(plain_rope_frequencies(
        keys.optional_number({"rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa"}).value_or(10000),
        c.rotary_dim));
    const float one = is_gguf(source) ? 0 : 1;  // Hugging Face stores norm weights minus one
    score_scale_ = static_cast<float>(1 / std::sqrt(gemma_score_divisor(source, c, /*layers_of_27b=*/62)));
    logit_cap_ =
        static_cast<float>(keys.optional_number({"final_logit_softcapping", "final_logit_softcapping"}).value_or(0));
    const auto windows =
        layer_windows(source, c, keys.optional_integer({.hf = "sliding_window_pattern"}, {1, 1000}).value_or(6));
    const std::string hf = hf_prefix(source);
    for (const char* other : {"vision_tower.", "multi_modal_projector.", "mm."}) w.ignore(other);

    const TensorName embedding{"token_embd.weight", hf + "embed_tokens.weight"};
    embedding_ = w.table(embedding, c.vocab, c.hidden);
    for (int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer at(w, i, {"blk.{}.", hf + "layers.{}."});
      layers_.push_back({
          .window = windows[static_cast<size_t>(i)],
          .attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden, one),
          .post_attention_norm =
              at.vector({"post_attention_norm.weight", "post_attention_layernorm.weight"}, c.hidden, one),
          .attention = load_attention(at, c),
          .q_norm = at.vector({"attn_q_norm.weight", "self_attn.q_norm.weight"}, c.head_dim, one),
          .k_norm = at.vector({"attn_k_norm.weight", "self_attn.k_norm.weight"}, c.head_dim, one),
          .feed_norm = at.vector({"ffn_norm.weight", "pre_feedforward_layernorm.weight"}, c.hidden, one),
          .post_feed_norm = at.vector({"post_ffw_norm.weight", "post_feedforward_layernorm.weight"}, c.hidden, one),
          .feed = load_feed_forward(at, c, activation_),
      });
    }
    norm_ = w.vector({"output_norm.weight", hf + "norm.weight"}, c.hidden, one);
    head_ = load_output_head(w, c, {"output.weight", "lm_head.weight"}, embedding);
  }

  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return global_rope_.long_from; }

  std::vector<AttentionProblem> attention_problems() const override {
    auto problems = Model::attention_problems();
    for (size_t i = 0; i < layers_.size(); ++i) problems[i].window = layers_[i].window;
    return problems;
  }

  void forward(Pass& p) const override {
    p.prepare_rope(global_rope_, kGlobal);
    p.prepare_rope(local_rope_, kLocal);
    p.embed(*embedding_, p.hidden, std::sqrt(float(config_.hidden)));
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      p.rms_norm(p.hidden, layer.attention_norm, p.normed);
      p.linear(p.normed, layer.attention.qkv, p.qkv);
      p.head_norm(p.q, config_.heads, layer.q_norm);
      p.head_norm(p.k, config_.kv_heads, layer.k_norm);
      p.turn(RopeStyle::Halves, layer.window > 0 ? kLocal : kGlobal);
      p.attend(i, {.scale = score_scale_, .window = layer.window});
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
  RopeFrequencies global_rope_, local_rope_;
  float score_scale_, logit_cap_;
  Activation activation_;
  const WeightView* embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  const float* norm_;   // [hidden]
  const Linear* head_;  // [vocab, hidden]
};

}  // namespace

std::unique_ptr<Model> make_gemma3(const WeightSource& source, Weights& weights) {
  return std::make_unique<Gemma3>(source, weights);
}

}  // namespace millrace
