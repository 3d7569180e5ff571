// Granite 3 and 4 (dense): as Llama, with factors on embedding, scores, blocks and logits.
#include "models/decoder.h"
#include "models/hybrid.h"
#include "models/registry.h"

namespace millrace {

namespace {

template <class AnyDecoder>
void read_multipliers(const WeightSource& source, AnyDecoder& model) {
  const Config& keys = source.config();
  const auto positive = [&](ConfigKey key, double usual) {
    const double value = keys.optional_number(key).value_or(usual);
    if (!(value > 0)) keys.fail_key(key, "must be positive");
    return value;
  };
  const double usual_scale = is_gguf(source) ? model.score_scale : 1;
  model.embedding_scale = static_cast<float>(positive({"embedding_multiplier", "embedding_scale"}, 1));
  model.score_scale = static_cast<float>(positive({"attention_multiplier", "attention.scale"}, usual_scale));
  model.logit_scale = static_cast<float>(1 / positive({"logits_scaling", "logit_scale"}, 1));
  model.multiply_blocks_by(positive({"residual_multiplier", "residual_scale"}, 1));
}

}  // namespace

void read_granite_multipliers(const WeightSource& source, Decoder& model) { read_multipliers(source, model); }
void read_granite_multipliers(const WeightSource& source, Hybrid& model) { read_multipliers(source, model); }

std::unique_ptr<Model> make_granite(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig config = read_decoder_config(source);
  config.window = 0;  // transformers ignores one
  auto model = std::make_unique<Decoder>(config);
  model->rope = w.placed(read_rope_frequencies(source, model->config()));
  model->rope_style = style_of_pairs(w, model->config());
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  read_granite_multipliers(source, *model);
  // Granite 4 without RoPE becomes a GGUF file of this architecture.
  const bool rotates = source.config().optional_boolean({.gguf = "rope.scaling.finetuned"}).value_or(true);
  for (int64_t i = 0; i < model->config().layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_layer(at, state);
    if (!rotates) layer.rope = LayerRope::None;
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
