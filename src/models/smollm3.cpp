// SmolLM3: as Llama, with every fourth layer without RoPE, and optionally a window on those layers.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// GGUF files lack both keys.
std::vector<bool> layers_with_rope(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  std::vector<bool> rotates;
  if (const auto list = keys.optional_array<int64_t>({.hf = "no_rope_layers"}); list && !list->empty()) {
    if (std::ssize(*list) < c.layers) keys.fail_key({.hf = "no_rope_layers"}, "must name every layer");
    for (const int64_t rope : *list) rotates.push_back(rope != 0);
    return rotates;
  }
  const int64_t interval = keys.optional_integer({.hf = "no_rope_layer_interval"}, {1, 1000}).value_or(4);
  for (int64_t i = 0; i < c.layers; ++i) rotates.push_back((i + 1) % interval != 0);
  return rotates;
}

}  // namespace

std::unique_ptr<Model> make_smollm3(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source);
  const Config& keys = source.config();
  if (!keys.optional_boolean({.hf = "use_sliding_window"}).value_or(false)) c.window = 0;
  const std::vector<bool> rotates = layers_with_rope(source, c);
  const bool typed = keys.has({.hf = "layer_types"});
  const std::vector<int> windows = typed ? layer_windows(source, c, 1) : std::vector<int>();
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->rope_style = style_of_pairs(w, model->config());
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_layer(at, state);
    const auto index = static_cast<size_t>(i);
    layer.rope = rotates[index] ? LayerRope::Global : LayerRope::None;
    layer.window = typed ? windows[index] : rotates[index] ? 0 : c.window;
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
