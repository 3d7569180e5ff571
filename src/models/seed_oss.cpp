// Seed-OSS: as Llama, with biases on q, k and v. GGUF files name the norm before the feed-forward post_attention_norm.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_seed_oss(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig config = read_decoder_config(source);
  config.window = 0;  // transformers ignores one
  auto model = std::make_unique<Decoder>(config);
  const DecoderConfig& c = model->config();
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_bare_layer(state);
    layer.attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden);
    layer.attention = load_attention(at, c);
    layer.feed_norm = at.vector({"post_attention_norm.weight", "post_attention_layernorm.weight"}, c.hidden);
    layer.feed = load_feed_forward(at, c, model->activation);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
