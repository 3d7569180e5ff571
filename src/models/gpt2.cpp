// GPT-2: learned positions, LayerNorm and biases, q, k and v in one matrix, feed-forward without gate. Hugging Face
// folders store the matrices of layers as [in, out].
#include "models/layer_norm_decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

DecoderConfig read_config(const WeightSource& source) {
  DecoderKeys keys{.layers = "n_layer",
                   .hidden = "n_embd",
                   .feed_forward = "n_inner",
                   .heads = "n_head",
                   .kv_heads = "",
                   .head_dim = "",
                   .context = "n_positions",
                   .norm_epsilon = "layer_norm_epsilon",
                   .usual_context = 1024};
  keys.usual_feed_forward = 4 * source.config().integer({keys.hidden, "embedding_length"}, {1, 1 << 20});
  DecoderConfig c = read_layer_norm_config(source, keys);
  // The converter to GGUF writes 4 * hidden, whatever the tensor's size is.
  c.feed_forward = gguf_rows(source, "blk.0.ffn_up.weight").value_or(c.feed_forward);
  c.rotary_dim = 0;
  c.learned_positions = true;
  return c;
}

}  // namespace

std::unique_ptr<Model> make_gpt2(const WeightSource& source, Weights& w, StateLayout& state) {
  const Config& keys = source.config();
  const auto flag = [&](std::string_view key, bool usual) {
    return keys.optional_boolean({.hf = key}).value_or(usual);
  };
  if (flag("add_cross_attention", false)) refuse(source, "cross-attention");
  auto model = std::make_unique<LayerNormDecoder>(read_config(source));
  model->activation = read_activation(source, "activation_function", Activation::GeluTanh);
  for (const char* masks : {".attn.bias", ".attn.masked_bias"}) w.ignore(masks);
  model->load(w, state,
              {.base = source.has("wte.weight") ? "" : "transformer.",  // the published GPT-2 has no prefix
               .layer = "h.{}.",
               .embedding = "wte.weight",
               .positions = "wpe.weight",
               .norm = "ln_f",
               .attention_norm = "ln_1",
               .feed_norm = "ln_2",
               .qkv = "attn.c_attn.weight",
               .out = "attn.c_proj.weight",
               .up = "mlp.c_fc.weight",
               .down = "mlp.c_proj.weight",
               .transposed = true});
  for (size_t i = 0; i < model->layers.size(); ++i) {
    float& scale = model->layers[i].score_scale;
    if (!flag("scale_attn_weights", true)) scale = 1;
    if (flag("scale_attn_by_inverse_layer_idx", false)) scale /= static_cast<float>(i + 1);
  }
  return model;
}

}  // namespace millrace
