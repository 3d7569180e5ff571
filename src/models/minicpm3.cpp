// MiniCPM3: latent attention in a dense decoder, with factors on embedding, blocks and logits.
#include <cmath>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_minicpm3(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  DecoderConfig c = read_decoder_config(
      source, {.usual_head_dim = 32, .usual_context = 32768, .usual_epsilon = 1e-5, .any_value_size = true});
  const LatentSizes usual{
      .plain = 64, .rotary = 32, .value = static_cast<int>(c.hidden / c.heads), .latent = 256, .query_latent = 768};
  const LatentSizes sizes = read_latent_sizes(source, usual, c);
  c.window = 0;
  // GGUF files lack these factors; llama.cpp uses those of the published model.
  const auto positive = [&](const char* name, double otherwise) {
    const double value = keys.optional_number({.hf = name}).value_or(otherwise);
    if (!(value > 0)) keys.fail_key({.hf = name}, "must be positive");
    return value;
  };
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_latent_rope(source, c));
  model->score_scale = latent_score_scale(source, sizes);
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  model->embedding_scale = static_cast<float>(positive("scale_emb", 12));
  model->logit_scale = static_cast<float>(positive("dim_model_base", 256) / double(c.hidden));
  model->multiply_blocks_by(positive("scale_depth", 1.4) / std::sqrt(double(c.layers)));
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    model->add_latent_layer(at, state, sizes, {});
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
