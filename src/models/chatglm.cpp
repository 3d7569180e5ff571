// ChatGLM2/3, GLM-4 and GLM-4-0414: as Llama, with half of each head turning (pairs side by side), biases on q, k and
// v, gate and up in one matrix, and in GLM-4-0414 a second norm after each block.
#include <cmath>

#include "models/blocks.h"
#include "models/registry.h"

namespace millrace {
namespace {

struct Layer {
  const float *attention_norm, *post_attention_norm;  // [hidden]; the second is null before GLM-4-0414
  AttentionWeights attention;
  const float *feed_norm, *post_feed_norm;  // [hidden]; likewise
  FeedForwardWeights feed;
};

// The names of ChatGLM's own code, and of the models as transformers rewrote them.
struct Names {
  std::string embedding, layer, qkv, out, attention_norm, post_attention_norm, feed_norm, post_feed_norm, gate_up, down,
      norm, head;
};
const Names kOriginal{"transformer.embedding.word_embeddings.weight",
                      "transformer.encoder.layers.{}.",
                      "self_attention.query_key_value.weight",
                      "self_attention.dense.weight",
                      "input_layernorm.weight",
                      "",
                      "post_attention_layernorm.weight",
                      "",
                      "mlp.dense_h_to_4h.weight",
                      "mlp.dense_4h_to_h.weight",
                      "transformer.encoder.final_layernorm.weight",
                      "transformer.output_layer.weight"};
const Names kRewritten{"model.embed_tokens.weight",
                       "model.layers.{}.",
                       "",
                       "self_attn.o_proj.weight",
                       "input_layernorm.weight",
                       "post_self_attn_layernorm.weight",
                       "post_attention_layernorm.weight",
                       "post_mlp_layernorm.weight",
                       "mlp.gate_up_proj.weight",
                       "mlp.down_proj.weight",
                       "model.norm.weight",
                       "lm_head.weight"};

bool is_original(const WeightSource& source) { return !is_gguf(source) && source.config().has({.hf = "kv_channels"}); }

DecoderConfig read_config(const WeightSource& source) {
  if (!is_original(source)) return read_decoder_config(source);
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(source, {.layers = "num_layers",
                                                 .feed_forward = "ffn_hidden_size",
                                                 .kv_heads = "multi_query_group_num",
                                                 .head_dim = "kv_channels",
                                                 .context = "seq_length",
                                                 .norm_epsilon = "layernorm_epsilon",
                                                 .vocab = "padded_vocab_size"});
  if (!keys.optional_boolean({.hf = "multi_query_attention"}).value_or(false)) c.kv_heads = c.heads;
  if (!keys.optional_boolean({.hf = "rmsnorm"}).value_or(true)) refuse(source, "ChatGLM with LayerNorm");
  c.rotary_dim = c.head_dim / 2;
  return c;
}

RopeFrequencies read_rope(const WeightSource& source, const DecoderConfig& c) {
  if (!is_original(source)) return read_rope_frequencies(source, c);
  const double ratio = source.config().optional_number({.hf = "rope_ratio"}).value_or(1);
  return plain_rope_frequencies(10000 * ratio, c.rotary_dim);
}

class ChatGlm final : public Model {
 public:
  ChatGlm(const WeightSource& source, Weights& w)
      : config_(read_config(source)), rope_(w.placed(read_rope(source, config_))) {
    const auto& c = config_;
    activation_ = read_activation(source, "hidden_act", Activation::Silu);
    const Names& hf = is_original(source) ? kOriginal : kRewritten;
    residual_from_norm_ =
        source.config().optional_boolean({.hf = "apply_residual_connection_post_layernorm"}).value_or(false);
    w.ignore("rotary_pos_emb.inv_freq");
    const TensorName embedding{"token_embd.weight", hf.embedding};
    embedding_ = w.table(embedding, c.vocab, c.hidden);
    for (int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer at(w, i, {"blk.{}.", hf.layer});
      const TensorName fused{"attn_qkv.weight", hf.qkv};
      layers_.push_back({
          .attention_norm = at.vector({"attn_norm.weight", hf.attention_norm}, c.hidden),
          .post_attention_norm = at.optional_vector({"post_attention_norm.weight", hf.post_attention_norm}, c.hidden),
          .attention = at.has(fused)
                           ? AttentionWeights{at.linear({{fused, c.qkv_dim()}}, c.hidden),
                                              at.linear({{{"attn_output.weight", hf.out}, c.hidden}}, c.q_dim())}
                           : load_attention(at, c),
          .feed_norm = at.vector({"ffn_norm.weight", hf.feed_norm}, c.hidden),
          .post_feed_norm = at.optional_vector({"post_ffw_norm.weight", hf.post_feed_norm}, c.hidden),
          .feed = {.gate_up = at.gate_up({{{"ffn_up.weight", hf.gate_up}, 2 * c.feed_forward}}, c.hidden, activation_),
                   .down = at.linear({{{"ffn_down.weight", hf.down}, c.hidden}}, c.feed_forward)},
      });
    }
    norm_ = w.vector({"output_norm.weight", hf.norm}, c.hidden);
    head_ = load_output_head(w, c, {"output.weight", hf.head}, embedding);
  }

  const DecoderConfig& config() const override { return config_; }
  int64_t long_from() const override { return rope_.long_from; }

  void forward(Pass& p) const override {
    p.prepare_rope(rope_);
    p.embed(*embedding_, p.hidden);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      p.rms_norm(p.hidden, layer.attention_norm, p.normed);
      p.linear(p.normed, layer.attention.qkv, p.qkv);
      if (residual_from_norm_) p.rms_norm(p.hidden, layer.attention_norm, p.hidden);  // attend() keeps no norms
      p.turn(RopeStyle::Interleaved);
      p.attend(i, {.scale = 1 / std::sqrt(float(config_.head_dim))});
      p.linear(p.attended, layer.attention.out, p.residual);
      if (layer.post_attention_norm != nullptr) p.rms_norm(p.residual, layer.post_attention_norm, p.residual);
      p.ops.add(p.hidden, p.residual, p.hidden);

      p.rms_norm(p.hidden, layer.feed_norm, p.normed);
      if (residual_from_norm_) p.rms_norm(p.hidden, layer.feed_norm, p.hidden);
      feed_forward(p, layer.feed, activation_, p.normed, p.residual);
      if (layer.post_feed_norm != nullptr) p.rms_norm(p.residual, layer.post_feed_norm, p.residual);
      p.ops.add(p.hidden, p.residual, p.hidden);
    }
    p.linear_of_wanted(p.rms_norm(p.hidden, norm_), head_);
  }

 private:
  DecoderConfig config_;
  RopeFrequencies rope_;
  Activation activation_;
  bool residual_from_norm_;      // an option of ChatGLM's own code that no released model uses
  const WeightView* embedding_;  // [vocab, hidden]
  std::vector<Layer> layers_;
  const float* norm_;   // [hidden]
  const Linear* head_;  // [vocab, hidden]
};

}  // namespace

std::unique_ptr<Model> make_chatglm(const WeightSource& source, Weights& weights) {
  return std::make_unique<ChatGlm>(source, weights);
}

}  // namespace millrace
