// Gemma 2: norms before and after each block, soft-capped scores and logits, a sliding window on every other layer.
#include <cmath>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_gemma2(const WeightSource& source, Weights& w, StateLayout& state) {
  auto model = std::make_unique<Decoder>(read_decoder_config(source));
  const DecoderConfig& c = model->config();
  const Config& keys = source.config();
  const auto cap = [&](std::string_view key) { return float(keys.optional_number({key, key}).value_or(0)); };
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_activation", Activation::GeluTanh);
  model->embedding_scale = std::sqrt(float(c.hidden));
  model->score_scale = static_cast<float>(1 / std::sqrt(gemma_score_divisor(source, c, /*layers_of_27b=*/46)));
  model->score_cap = cap("attn_logit_softcapping");
  model->logit_cap = cap("final_logit_softcapping");
  const float one = is_gguf(source) ? 0 : 1;  // Hugging Face stores norm weights minus one
  const auto windows = layer_windows(source, c, 2);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    const auto norm = [&](const TensorName& name) { return at.vector(name, c.hidden, one); };
    DecoderLayer& layer = model->add_bare_layer(state);
    layer.window = windows[static_cast<size_t>(i)];
    layer.attention_norm = norm({"attn_norm.weight", "input_layernorm.weight"});
    layer.attention = load_attention(at, c);
    layer.post_attention_norm = norm({"post_attention_norm.weight", "post_attention_layernorm.weight"});
    layer.feed_norm = norm({"ffn_norm.weight", "pre_feedforward_layernorm.weight"});
    layer.feed = load_feed_forward(at, c, model->activation);
    layer.post_feed_norm = norm({"post_ffw_norm.weight", "post_feedforward_layernorm.weight"});
  }
  model->embedding = w.table({"token_embd.weight", "model.embed_tokens.weight"}, c.vocab, c.hidden);
  model->norm = w.vector({"output_norm.weight", "model.norm.weight"}, c.hidden, one);
  model->head = load_output_head(w, c);
  return model;
}

}  // namespace millrace
