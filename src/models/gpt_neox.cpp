// GPT-NeoX and Pythia: LayerNorm and biases, attention and feed-forward in parallel with a norm each, RoPE on a part of
// each head. Hugging Face folders store q, k and v by head in one matrix.
#include "models/layer_norm_decoder.h"
#include "models/registry.h"

namespace millrace {

std::unique_ptr<Model> make_gpt_neox(const WeightSource& source, Weights& w, StateLayout& state) {
  const ConfigKey parallel{"use_parallel_residual", "use_parallel_residual"};
  auto model = std::make_unique<LayerNormDecoder>(read_layer_norm_config(
      source,
      {.kv_heads = "", .head_dim = "", .norm_epsilon = "layer_norm_eps", .usual_context = 2048, .usual_rotary = 0.25}));
  if (source.config().optional_boolean(parallel).value_or(true)) model->residual = Residual::Parallel;
  model->rope = w.placed(read_rope_frequencies(source, model->config()));
  model->activation = read_activation(source, "hidden_act", Activation::GeluErf);
  for (const char* masks : {".attention.bias", ".attention.masked_bias"}) w.ignore(masks);
  model->load(w, state,
              {.base = "gpt_neox.",
               .embedding = "embed_in.weight",
               .norm = "final_layer_norm",
               .head = source.has("embed_out.weight") ? "embed_out.weight" : "lm_head.weight",
               .qkv = "attention.query_key_value.weight",
               .out = "attention.dense.weight",
               .up = "mlp.dense_h_to_4h.weight",
               .down = "mlp.dense_4h_to_h.weight",
               .qkv_by_head = true});
  return model;
}

}  // namespace millrace
