// Phi 3, 3.5 and 4: as Llama, with q, k and v in one matrix, gate and up in another, and longrope for long contexts.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_phi3(const WeightSource& source, Weights& w, StateLayout& state) {
  auto model = std::make_unique<Decoder>(read_decoder_config(source));
  const DecoderConfig& c = model->config();
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_bare_layer(state);
    layer.attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden);
    layer.attention.qkv = at.linear({{{"attn_qkv.weight", "self_attn.qkv_proj.weight"}, c.qkv_dim()}}, c.hidden);
    layer.attention.out = at.linear({{{"attn_output.weight", "self_attn.o_proj.weight"}, c.hidden}}, c.q_dim());
    layer.feed_norm = at.vector({"ffn_norm.weight", "post_attention_layernorm.weight"}, c.hidden);
    layer.feed.gate_up =
        at.gate_up({{{"ffn_up.weight", "mlp.gate_up_proj.weight"}, 2 * c.feed_forward}}, c.hidden, model->activation);
    layer.feed.down = at.linear({{{"ffn_down.weight", "mlp.down_proj.weight"}, c.hidden}}, c.feed_forward);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
