// OPT: learned positions, LayerNorm and biases, feed-forward without gate. The 350M has norms after its blocks and an
// embedding of another width. Hugging Face folders only: GGUF does not have this architecture.
#include "models/layer_norm_decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

DecoderConfig read_config(const WeightSource& source) {
  DecoderConfig c = read_layer_norm_config(source, {.feed_forward = "ffn_dim", .norm_epsilon = ""});
  c.rotary_dim = 0;
  c.learned_positions = true;
  return c;
}

}  // namespace

std::unique_ptr<Model> make_opt(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  const auto flag = [&](std::string_view key, bool usual) {
    return keys.optional_boolean({.hf = key}).value_or(usual);
  };
  auto model = std::make_unique<LayerNormDecoder>(read_config(source));
  const DecoderConfig& c = model->config();
  const bool norm_first = flag("do_layer_norm_before", true);
  model->residual = norm_first ? Residual::Serial : Residual::NormAfter;
  model->activation = read_activation(source, "activation_function", Activation::Relu);
  model->norm_weights = flag("layer_norm_elementwise_affine", true);
  model->final_norm = norm_first && !flag("_remove_final_layer_norm", false);
  model->position_offset = 2;  // rows of padding
  model->embedded = keys.optional_integer({.hf = "word_embed_proj_dim"}, {1, 1 << 20}).value_or(c.hidden);
  if (model->embedded != c.hidden) {
    model->project_in = w.linear({{{"", "model.decoder.project_in.weight"}, c.hidden}}, model->embedded);
    model->project_out = w.linear({{{"", "model.decoder.project_out.weight"}, model->embedded}}, c.hidden);
  }
  model->load(w, state,
              {.base = "model.decoder.",
               .positions = "embed_positions.weight",
               .norm = "final_layer_norm",
               .attention_norm = "self_attn_layer_norm",
               .feed_norm = "final_layer_norm",
               .out = "self_attn.out_proj.weight",
               .up = "fc1.weight",
               .down = "fc2.weight"});
  return model;
}

}  // namespace millrace
