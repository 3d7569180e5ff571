// Qwen 3: as Qwen 2, but with RMS norms of q and k before RoPE instead of biases.
#include <algorithm>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_qwen3(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source);
  const auto windows = upper_layer_windows(source, c);
  c.window = *std::max_element(windows.begin(), windows.end());  // a config may set a window that no layer uses
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_layer(at, state);
    layer.window = windows[static_cast<size_t>(i)];
    load_qk_norms(at, c, /*whole=*/false, layer.attention);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
