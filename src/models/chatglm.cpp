// ChatGLM2/3, GLM-4 and GLM-4-0414: as Llama, with RoPE on half of each head (interleaved pairs), biases on q, k and v,
// gate and up in one matrix, and in GLM-4-0414 a second norm after each block.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// Tensor names of ChatGLM's own code and of transformers, whose folders have q, k and v apart.
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
                       "self_attn.qkv_proj.weight",
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
  if (!is_original(source)) return read_decoder_config(source, {.usual_epsilon = 1.5625e-7, .usual_rotary = 0.5});
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

}  // namespace

std::unique_ptr<Model> make_chatglm(const WeightSource& source, Weights& w, StateLayout& state) {
  auto model = std::make_unique<Decoder>(read_config(source));
  const DecoderConfig& c = model->config();
  model->rope = w.placed(read_rope(source, c));
  model->rope_style = RopeStyle::Interleaved;
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  // An option of ChatGLM's own code; no released model sets it.
  model->residual_from_norm =
      source.config().optional_boolean({.hf = "apply_residual_connection_post_layernorm"}).value_or(false);
  w.ignore("rotary_pos_emb.inv_freq");
  const Names& hf = is_original(source) ? kOriginal : kRewritten;
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", hf.layer});
    DecoderLayer& layer = model->add_bare_layer(state);
    layer.window = 0;
    layer.attention_norm = at.vector({"attn_norm.weight", hf.attention_norm}, c.hidden);
    const std::vector<LinearPart> whole{{{"attn_qkv.weight", hf.qkv}, c.qkv_dim()}};
    const std::vector<LinearPart> apart{{{"attn_q.weight", "self_attn.q_proj.weight"}, c.q_dim()},
                                        {{"attn_k.weight", "self_attn.k_proj.weight"}, c.kv_dim()},
                                        {{"attn_v.weight", "self_attn.v_proj.weight"}, c.kv_dim()}};
    const bool fused = at.has(whole[0].name);
    layer.attention.qkv = at.linear(fused ? whole : apart, c.hidden, fused ? apart : whole);
    layer.attention.out = at.linear({{{"attn_output.weight", hf.out}, c.hidden}}, c.q_dim());
    layer.post_attention_norm = at.optional_vector({"post_attention_norm.weight", hf.post_attention_norm}, c.hidden);
    layer.feed_norm = at.vector({"ffn_norm.weight", hf.feed_norm}, c.hidden);
    layer.feed.gate_up = at.gate_up({{{"ffn_up.weight", hf.gate_up}, 2 * c.feed_forward}}, c.hidden, model->activation);
    layer.feed.down = at.linear({{{"ffn_down.weight", hf.down}, c.hidden}}, c.feed_forward);
    layer.post_feed_norm = at.optional_vector({"post_ffw_norm.weight", hf.post_feed_norm}, c.hidden);
  }
  const TensorName embedding{"token_embd.weight", hf.embedding};
  model->embedding = w.table(embedding, c.vocab, c.hidden);
  model->norm = w.vector({"output_norm.weight", hf.norm}, c.hidden);
  model->head = load_output_head(w, c, {"output.weight", hf.head}, embedding);
  return model;
}

}  // namespace millrace
