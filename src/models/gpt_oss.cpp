// gpt-oss: attention with sinks and, on every other layer, a window; experts with biases and a clamped SwiGLU.
#include <cmath>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// GGUF files do not say it: llama.cpp has the numbers of the published models.
SwigluClamp read_clamp(const WeightSource& source) {
  const auto number = [&](std::string_view key, float usual) {
    const double value = source.config().optional_number({.hf = key}).value_or(usual);
    if (!(value > 0) || !std::isfinite(value)) source.config().fail_key({.hf = key}, "must be positive");
    return static_cast<float>(value);
  };
  const SwigluClamp usual;
  return {number("swiglu_limit", usual.limit), number("swiglu_alpha", usual.slope)};
}

}  // namespace

std::unique_ptr<Model> make_gpt_oss(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source);
  read_mixture_config(source, c, {.experts = 128, .per_row = 4});
  auto model = std::make_unique<Decoder>(c);
  // Unlike llama.cpp, which rounds, the model's own code does not.
  model->rope = w.placed(read_rope_frequencies(source, c, "", 150000, /*gguf_truncates=*/false));
  const SwigluClamp clamp = read_clamp(source);
  const std::vector<int> windows = layer_windows(source, c, 2);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_bare_layer(state);
    layer.window = windows[static_cast<size_t>(i)];
    layer.attention_norm = at.vector({"attn_norm.weight", "input_layernorm.weight"}, c.hidden);
    layer.attention = load_attention(at, c);
    layer.sinks = at.vector({"attn_sinks.weight", "self_attn.sinks"}, c.heads);
    layer.feed_norm = at.vector({"post_attention_norm.weight", "post_attention_layernorm.weight"}, c.hidden);
    layer.experts = load_experts(at, c, {.scoring = Scoring::SoftmaxOfChosen}, Activation::ClampedSwiglu, clamp);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
