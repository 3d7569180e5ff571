// Qwen 2 and 2.5: as Llama, with biases on q, k and v, and optionally a window on the upper layers.
#include <algorithm>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_qwen2(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source);
  const auto windows = upper_layer_windows(source, c);
  c.window = *std::max_element(windows.begin(), windows.end());  // a config may set a window that no layer uses
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    model->add_layer(at, state).window = windows[static_cast<size_t>(i)];
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
