#include "models/encoder.h"

#include <cmath>

namespace millrace {

Encoder::Encoder(DecoderConfig c, StateLayout& state)
    : config_(std::move(c)), state_(state.paged({config_.kv_heads, config_.head_dim, config_.head_dim})) {}

DecoderConfig read_encoder_config(const WeightSource& source, const PoolingSettings& pooling, DecoderKeys keys) {
  keys.gguf_norm_epsilon = "attention.layer_norm_epsilon";
  DecoderConfig c = read_decoder_config(source, keys);
  c.window = 0;
  if (pooling.longest > 0) c.context = std::min(c.context, pooling.longest);
  c.learned_positions = true;  // none of the encoders can be longer than it was trained for
  return c;
}

void Encoder::forward(Pass& p) const {
  const Rope global = rope.table != nullptr ? p.rope(rope, RopeStyle::Halves) : Rope{};
  const Rope local = local_rope.table != nullptr ? p.rope(local_rope, RopeStyle::Halves, "local rope angles") : global;
  const Matrix hidden = embed(p);
  for (const EncoderLayer& layer : layers) {
    const Matrix attended = attend(p, layer, input(p, hidden, layer.attention_norm), layer.local_rope ? local : global);
    p.add_linear(attended, layer.out, hidden);
    norm_after(p, hidden, layer.attention_norm);
    const Matrix feed = p.feed_forward(input(p, hidden, layer.feed_norm), layer.up, gated, activation);
    p.add_linear(feed, layer.down, hidden);
    norm_after(p, hidden, layer.feed_norm);
  }
  if (final_norm) p.layer_norm(hidden, final_norm->weight, final_norm->bias, hidden);
  head.forward(p, hidden);
}

Matrix Encoder::embed(Pass& p) const {
  const Matrix hidden = p.embed(*embedding);
  if (positions != nullptr) {
    WeightView table = *positions;  // begins at the row of position 0
    table.data = positions->row(position_offset);
    table.rows -= position_offset;
    p.ops.embed({.table = table, .ids = p.batch.positions, .accumulate = true, .out = hidden});
  }
  if (types != nullptr) p.ops.embed({.table = *types, .ids = p.batch.types, .accumulate = true, .out = hidden});
  p.layer_norm(hidden, embedding_norm.weight, embedding_norm.bias, hidden);
  return hidden;
}

// The input of a block, in the working type.
Matrix Encoder::input(Pass& p, Matrix hidden, const std::optional<LayerNormWeights>& norm) const {
  const bool normed = norm_first && norm;
  if (!normed && hidden.dtype == p.ops.working()) return hidden;
  const Matrix x = p.buffer("normed", hidden.cols);
  normed ? p.layer_norm(hidden, norm->weight, norm->bias, x) : p.ops.copy(hidden, x);
  return x;
}

void Encoder::norm_after(Pass& p, Matrix hidden, const std::optional<LayerNormWeights>& norm) const {
  if (!norm_first && norm) p.layer_norm(hidden, norm->weight, norm->bias, hidden);
}

Matrix Encoder::attend(Pass& p, const EncoderLayer& layer, Matrix x, const Rope& rotation) const {
  const DecoderConfig& c = config_;
  const Matrix qkv = p.buffer("qkv", c.qkv_dim()), attended = p.buffer("attended", c.q_dim());
  p.linear(x, layer.qkv, qkv);
  const AttentionSettings settings{
      .heads = c.heads, .scale = 1 / std::sqrt(float(c.head_dim)), .window = layer.window, .bidirectional = true};
  p.attend(state_, qkv.columns(0, c.q_dim()), qkv.columns(c.q_dim(), c.kv_dim()),
           qkv.columns(c.q_dim() + c.kv_dim(), c.kv_dim()), rotation, settings, attended);
  return attended;
}

}  // namespace millrace
