// Llama 1/2/3.x, Mistral, TinyLlama, SmolLM2: RMSNorm, GQA attention with RoPE, SwiGLU.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// Mistral has a sliding window. Llama in transformers ignores a window in its config.
DecoderConfig read_config(const WeightSource& source) {
  DecoderConfig c = read_decoder_config(source);
  const bool mistral = c.architecture == "MistralForCausalLM" || c.architecture == "mistral";
  if (!is_gguf(source) && !mistral) c.window = 0;
  return c;
}

}  // namespace

std::unique_ptr<Model> make_llama(const WeightSource& source, Weights& w, StateLayout& state) {
  if (source.config().optional_integer({.gguf = "expert_count"}).value_or(0) > 0) return make_mixtral(source, w, state);
  auto model = std::make_unique<Decoder>(read_config(source));
  model->rope = w.placed(read_rope_frequencies(source, model->config()));
  model->rope_style = style_of_pairs(w, model->config());
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < model->config().layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    model->add_layer(at, state);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
