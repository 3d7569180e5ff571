// Gemma (1): as Llama, with a scaled embedding, tanh GELU and norm weights stored minus one.
#include <cmath>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// The first configs say "gelu" and mean tanh, which transformers computed whatever they said. It reads them now.
bool is_first_config(const WeightSource& source) {
  const std::string version = source.config().optional_string({.hf = "transformers_version"}).value_or("");
  return version.starts_with("4.38.") || version.starts_with("4.39.") || version.starts_with("4.40.");
}

}  // namespace

std::unique_ptr<Model> make_gemma(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig config = read_decoder_config(source);
  config.window = 0;  // transformers ignores one
  auto model = std::make_unique<Decoder>(config);
  const DecoderConfig& c = model->config();
  if (source.config().optional_boolean({.hf = "use_bidirectional_attention"}).value_or(false))
    refuse(source, "attention in both directions (an embedding model)");
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::GeluTanh);
  if (model->activation == Activation::GeluErf && is_first_config(source)) model->activation = Activation::GeluTanh;
  model->embedding_scale = std::sqrt(float(c.hidden));
  const float one = is_gguf(source) ? 0 : 1;
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_bare_layer(state);
    layer.attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden, one);
    layer.attention = load_attention(at, c);
    layer.feed_norm = at.vector({"ffn_norm.weight", "post_attention_layernorm.weight"}, c.hidden, one);
    layer.feed = load_feed_forward(at, c, model->activation);
  }
  model->embedding = w.table({"token_embd.weight", "model.embed_tokens.weight"}, c.vocab, c.hidden);
  model->norm = w.vector({"output_norm.weight", "model.norm.weight"}, c.hidden, one);
  model->head = load_output_head(w, c);
  return model;
}

}  // namespace millrace
