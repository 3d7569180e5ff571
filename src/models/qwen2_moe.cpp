// Qwen 1.5 and 2 with experts: attention as Qwen 2, and an expert that all tokens share, times a gate.
#include <algorithm>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// Without "layer_types", every other layer below "max_window_layers" has the window.
std::vector<int> windows_of(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const bool slides = keys.optional_boolean({.hf = "use_sliding_window"}).value_or(false);
  if (slides && keys.has({.hf = "layer_types"})) return layer_windows(source, c, 1);
  const int64_t below = slides ? keys.optional_integer({.hf = "max_window_layers"}).value_or(28) : 0;
  const int window = keys.has({.hf = "sliding_window"}) ? c.window : 4096;
  std::vector<int> windows;
  for (int64_t i = 0; i < c.layers; ++i) windows.push_back(i < below && i % 2 == 0 ? window : 0);
  return windows;
}

}  // namespace

std::unique_ptr<Model> make_qwen2_moe(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source);
  read_mixture_config(source, c, {.experts = 60, .per_row = 4, .width = 1408});
  const auto windows = windows_of(source, c);
  c.window = *std::max_element(windows.begin(), windows.end());
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  const RouterSettings router{.scoring = Scoring::Softmax, .renormalize = renormalizes(source, false)};
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_mixture_layer(at, state, router);
    layer.window = windows[static_cast<size_t>(i)];
    if (!layer.experts) continue;
    require_shared_gate(at);
    load_shared_expert(at, c, model->activation, /*required=*/true, *layer.experts);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
