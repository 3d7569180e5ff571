// OLMo 2 and 3: norms after the blocks instead of before them, and norms of all heads of q and k at once. OLMo 3 has
// windows on three of four layers; RoPE scaling applies only to layers without window.
#include "models/decoder.h"
#include "models/registry.h"

namespace millrace {
namespace {

constexpr double kTheta3 = 5e5;  // OLMo 3's default

RopeFrequencies read_rope(const WeightSource& source, const DecoderConfig& c, bool olmo3) {
  if (!olmo3) return read_rope_frequencies(source, c);
  RopeFrequencies rope = read_rope_frequencies(source, c, "full_attention", kTheta3);
  // Converters have also written the attention factor, which includes YaRN's magnitude, to attn_factor alone.
  const auto factor = source.config().optional_number({.gguf = "rope.scaling.attn_factor"});
  if (factor && !source.config().has({.gguf = "rope.scaling.yarn_attn_factor"}))
    rope.magnitude = static_cast<float>(*factor);
  return rope;
}

RopeFrequencies read_local_rope(const WeightSource& source, const DecoderConfig& c) {
  if (!is_gguf(source)) return read_rope_frequencies(source, c, "sliding_attention", kTheta3);
  const Config& keys = source.config();
  const double global = keys.optional_number({.gguf = "rope.freq_base"}).value_or(kTheta3);
  return plain_rope_frequencies(keys.optional_number({.gguf = "rope.freq_base_swa"}).value_or(global), c.rotary_dim);
}

}  // namespace

std::unique_ptr<Model> make_olmo2(const WeightSource& source, Weights& w, StateLayout& state) {
  DecoderConfig c = read_decoder_config(source);
  const bool olmo3 = is_gguf(source) ? c.window > 0 : c.architecture != "Olmo2ForCausalLM" && c.architecture != "olmo2";
  if (!olmo3) c.window = 0;
  const auto windows = layer_windows(source, c, olmo3 ? 4 : 1);
  auto model = std::make_unique<Decoder>(c);
  model->rope = w.placed(read_rope(source, c, olmo3));
  if (olmo3) model->local_rope = w.placed(read_local_rope(source, c));
  model->activation = read_activation(source, "hidden_act", Activation::Silu);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", "model.layers.{}."});
    DecoderLayer& layer = model->add_post_norm_layer(at, state);
    load_qk_norms(at, c, /*whole=*/true, layer.attention);
    layer.window = windows[static_cast<size_t>(i)];
    if (layer.window > 0) layer.rope = LayerRope::Local;
  }
  model->load_ends(w);
  return model;
}

}  // namespace millrace
