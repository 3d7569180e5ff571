// Qwen 3 with experts: attention as Qwen 3. Some layers may be dense.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_qwen3_moe(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source);
  read_mixture_config(source, c, {.experts = 128, .per_row = 8, .width = 768});
  if (!source.config().optional_boolean({.hf = "use_sliding_window"}).value_or(false)) c.window = 0;
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope_frequencies(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  // GGUF files do not say whether weights are renormalized; those of all published models are.
  const RouterSettings router{.scoring = Scoring::Softmax, .renormalize = renormalizes(source, is_gguf(source))};
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_mixture_layer(at, state, router);
    load_qk_norms(at, c, /*whole=*/false, layer.attention);
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
