// Gemma 3 (text): as Gemma 2 without soft caps, with norms of q and k, and two ropes. Most layers have a sliding window
// and the local rope; every sixth layer attends to the whole context and has the global rope. EmbeddingGemma is the
// same with attention in both directions, pooling and dense layers.
#include <cmath>

#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

// Published configs omit values that all sizes share.
constexpr DecoderKeys kKeys{
    .usual_heads = 8, .usual_kv_heads = 4, .usual_head_dim = 256, .usual_context = 131072, .usual_vocab = 262208};
constexpr double kGlobalTheta = 1e6, kLocalTheta = 1e4;

}  // namespace

std::unique_ptr<Model> make_gemma3(const WeightSource& source, Weights& w, StateLayout& state) {
  auto model = std::make_unique<Decoder>(read_decoder_config(source, kKeys));
  const DecoderConfig& c = model->config();
  const Config& keys = source.config();
  const bool embeds = is_gguf(source) ? keys.architecture() == "gemma-embedding"
                                      : keys.optional_boolean({.hf = "use_bidirectional_attention"}).value_or(false);
  if (!embeds && keys.architecture() == "Gemma3TextModel") refuse(source, "a causal Gemma3TextModel without head");
  for (const char* images : {"vision_tower.", "multi_modal_projector.", "mm."}) w.ignore(images);

  model->rope = w.placed(read_rope_frequencies(source, c, "full_attention", kGlobalTheta));
  const ConfigKey local_key{"rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa"};
  const auto local_theta = keys.optional_number(local_key);
  if (local_theta && !(*local_theta > 0)) keys.fail_key(local_key, "must be positive");
  model->local_rope = w.placed(plain_rope_frequencies(local_theta.value_or(kLocalTheta), c.rotary_dim));
  model->activation = read_activation(source, "hidden_activation", Activation::GeluTanh);
  model->embedding_scale = std::sqrt(float(c.hidden));
  model->score_scale = static_cast<float>(1 / std::sqrt(gemma_score_divisor(source, c, /*layers_of_27b=*/62)));
  model->logit_cap = float(keys.optional_number({"final_logit_softcapping", "final_logit_softcapping"}).value_or(0));
  const float one = is_gguf(source) ? 0 : 1;  // Hugging Face stores norm weights minus one
  const auto windows =
      layer_windows(source, c, keys.optional_integer({.hf = "sliding_window_pattern"}, {1, 1000}).value_or(6));
  const std::string hf = text_model_prefix(source);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", hf + "layers.{}."});
    const auto norm = [&](const TensorName& name) { return at.vector(name, c.hidden, one); };
    DecoderLayer& layer = model->add_bare_layer(state);
    layer.window = windows[static_cast<size_t>(i)];
    if (embeds && layer.window > 0) layer.window = layer.window / 2 + 1;  // to each side
    if (layer.window > 0) layer.rope = LayerRope::Local;
    layer.attention_norm = norm({"attn_norm.weight", "input_layernorm.weight"});
    layer.attention = load_attention(at, c);
    layer.attention.q_norm = at.vector({"attn_q_norm.weight", "self_attn.q_norm.weight"}, c.head_dim, one);
    layer.attention.k_norm = at.vector({"attn_k_norm.weight", "self_attn.k_norm.weight"}, c.head_dim, one);
    layer.post_attention_norm = norm({"post_attention_norm.weight", "post_attention_layernorm.weight"});
    layer.feed_norm = norm({"ffn_norm.weight", "pre_feedforward_layernorm.weight"});
    layer.feed = load_feed_forward(at, c, model->activation);
    layer.post_feed_norm = norm({"post_ffw_norm.weight", "post_feedforward_layernorm.weight"});
  }
  const TensorName embedding{"token_embd.weight", hf + "embed_tokens.weight"};
  model->embedding = w.table(embedding, c.vocab, c.hidden);
  model->norm = w.vector({"output_norm.weight", hf + "norm.weight"}, c.hidden, one);
  if (embeds) {
    model->bidirectional = true;
    model->pooling = load_pooling_head(w, read_pooling(source), c);
    return model;
  }
  model->head = load_output_head(w, c, {"output.weight", "lm_head.weight"}, embedding);
  return model;
}

}  // namespace millrace
