// Llama 1/2/3.x, Mistral, TinyLlama, SmolLM2: RMSNorm, rotary GQA attention, SwiGLU.
#include "models/model.h"
#include "models/registry.h"

#include <cmath>

namespace millrace {
namespace {

struct Layer {
  const float* attention_norm;  // [hidden]
  const Linear* qkv;            // [q_dim + 2 kv_dim, hidden]
  const Linear* out;            // [hidden, q_dim]
  const float* feed_norm;       // [hidden]
  const Linear* gate_up;        // [2 feed_forward, hidden]
  const Linear* down;           // [hidden, feed_forward]
};

class Llama final : public Model {
 public:
  Llama(const WeightSource& source, Weights& w) : config_(read_decoder_config(source)), rope_(read_rope_frequencies(source, config_)) {
    // GGUF files hold q and k with rotary pairs side by side, Hugging Face files half a head apart.
    rope_style_ = source.convention() == WeightSource::Convention::Gguf ? RopeStyle::Interleaved : RopeStyle::Halves;
    const auto& c = config_;
    embedding_ = w.table({"token_embd.weight", "model.embed_tokens.weight"}, c.vocab, c.hidden);
    for (int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
      layers_.push_back({
          .attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden),
          .qkv = at.linear({{{"attn_q.weight", "self_attn.q_proj.weight"}, c.q_dim()},
                            {{"attn_k.weight", "self_attn.k_proj.weight"}, c.kv_dim()},
                            {{"attn_v.weight", "self_attn.v_proj.weight"}, c.kv_dim()}},
                           c.hidden),
          .out = at.linear({{{"attn_output.weight", "self_attn.o_proj.weight"}, c.hidden}}, c.q_dim()),
          .feed_norm = at.vector({"ffn_norm.weight", "post_attention_layernorm.weight"}, c.hidden),
          .gate_up = at.linear({{{"ffn_gate.weight", "mlp.gate_proj.weight"}, c.feed_forward},
                                {{"ffn_up.weight", "mlp.up_proj.weight"}, c.feed_forward}},
                               c.hidden),
          .down = at.linear({{{"ffn_down.weight", "mlp.down_proj.weight"}, c.hidden}}, c.feed_forward),
      });
    }
    norm_ = w.vector({"output_norm.weight", "model.norm.weight"}, c.hidden);
    head_ = output_head(w, c);
  }

  const DecoderConfig& config() const override { return config_; }

  void forward(Pass& p) const override {
    const AttentionSettings attention{.scale = 1 / std::sqrt(float(config_.head_dim)), .window = config_.window};
    p.prepare_rope(rope_);
    p.ops.embed(embedding_, p.batch.tokens, p.hidden);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      p.rms_norm(p.hidden, layer.attention_norm, p.normed);
      p.linear(p.normed, layer.qkv, p.qkv);
      p.turn(rope_style_);
      p.attend(i, attention);
      p.add_linear(p.attended, layer.out, p.hidden);

      p.rms_norm(p.hidden, layer.feed_norm, p.normed);
      p.linear(p.normed, layer.gate_up, p.gate_up);
      p.gate(Activation::Silu);
      p.add_linear(p.feed, layer.down, p.hidden);
    }
    const Matrix last = p.select_rows(p.hidden);
    p.rms_norm(last, norm_, last);
    p.linear(last, head_, p.logits);
  }

 private:
  DecoderConfig config_;
  RopeFrequencies rope_;
  RopeStyle rope_style_;
  WeightView embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  const float* norm_;  // [hidden]
  const Linear* head_;  // [vocab, hidden]
};

}  // namespace

std::unique_ptr<Model> make_llama(const WeightSource& source, Weights& weights) {
  return std::make_unique<Llama>(source, weights);
}

}  // namespace millrace
