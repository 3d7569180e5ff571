// Ministral 3, and the text model of Mistral 3 (Mistral or Ministral 3): as Llama, with YaRN and queries scaled by
// position.
#include <cmath>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// GGUF files divide the usual magnitude of YaRN by 0.1 * multiplier * ln(factor) + 1. Released models have a multiplier
// of 1, so their cosines and sines keep magnitude 1.
RopeFrequencies read_rope(const WeightSource& source, const DecoderConfig& c) {
  RopeFrequencies rope = read_rope_frequencies(source, c);
  const double multiplier = source.config().optional_number({.gguf = "rope.scaling.yarn_log_multiplier"}).value_or(0);
  const double factor = source.config().optional_number({.gguf = "rope.scaling.factor"}).value_or(1);
  if (multiplier != 0 && factor > 1)
    rope.magnitude = static_cast<float>(rope.magnitude / (0.1 * multiplier * std::log(factor) + 1));
  return rope;
}

QueryScale read_query_scale(const WeightSource& source, const DecoderConfig& c) {
  const Config& keys = source.config();
  const ConfigKey beta{"rope_parameters.llama_4_scaling_beta", "attention.temperature_scale"};
  const ConfigKey period{"rope_parameters.original_max_position_embeddings", "rope.scaling.original_context_length"};
  return {static_cast<float>(keys.optional_number(beta).value_or(0)),
          static_cast<int32_t>(keys.optional_integer(period, {1, int64_t(1) << 30}).value_or(c.context))};
}

}  // namespace

std::unique_ptr<Model> make_ministral3(const WeightSource& source, Weights& w, StateLayout& state) {
  auto model = std::make_unique<Decoder>(read_decoder_config(source));
  const Config& keys = source.config();
  const auto text_type = keys.optional_string({.hf = "model_type"});
  if (text_type && *text_type != "ministral3" && *text_type != "mistral" && *text_type != "mistral3")
    refuse(source, "a Mistral 3 with a text model of type '" + *text_type + "'");
  for (const char* images : {"vision_tower.", "multi_modal_projector."}) w.ignore(images);
  model->rope = w.placed(read_rope(source, model->config()));
  model->rope_style = style_of_pairs(w, model->config());
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  model->query_scale = read_query_scale(source, model->config());
  const std::string hf = text_model_prefix(source);
  for (int64_t i = 0; i < model->config().layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", hf + "layers.{}."});
    model->add_layer(at, state);
  }
  model->load_ends(w, hf);
  return model;
}

}  // namespace millrace
