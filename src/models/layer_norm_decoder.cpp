#include "models/layer_norm_decoder.h"

#include <cmath>

namespace millrace {

DecoderConfig read_layer_norm_config(const WeightSource& source, DecoderKeys keys) {
  keys.gguf_norm_epsilon = "attention.layer_norm_epsilon";
  keys.usual_epsilon = 1e-5;
  DecoderConfig c = read_decoder_config(source, keys);
  c.window = 0;
  return c;
}

std::optional<int64_t> gguf_rows(const WeightSource& source, std::string_view tensor) {
  const TensorInfo* found = is_gguf(source) ? source.find(tensor) : nullptr;
  if (found == nullptr || found->shape.size() != 2) return std::nullopt;
  return found->shape[0];
}

void LayerNormDecoder::load(Weights& w, StateLayout& state, const HfTensors& hf) {
  const DecoderConfig& c = config_;
  const bool folder = !is_gguf(w.source());
  gated_ = !hf.gate.empty();
  keeps_row_order_ = !hf.qkv_by_head;
  const float offset = folder ? hf.norm_offset : 0;
  const auto read_norm = [&](auto& from, const TensorName& name) {
    const TensorName weight{name.gguf + ".weight", name.hf + ".weight"}, bias{name.gguf + ".bias", name.hf + ".bias"};
    return LayerNormWeights{norm_weights ? from.vector(weight, c.hidden, offset) : nullptr,
                            from.optional_vector(bias, c.hidden)};
  };
  const auto matrix = [&](const TensorName& name, int64_t rows) {
    return LinearPart{.name = name, .rows = rows, .transposed = folder && hf.transposed};
  };
  const TensorName table{"token_embd.weight", hf.base + hf.embedding};
  embedding = w.table(table, c.vocab, embedded);
  if (c.learned_positions)
    positions = w.table({"position_embd.weight", hf.base + hf.positions}, position_offset + c.context, c.hidden);
  for (int64_t i = 0; i < c.layers; ++i) {
    Weights::Layer at(w, i, {"blk.{}.", hf.base + hf.layer});
    LayerNormLayer& layer = layers.emplace_back();
    layer.attention_norm = read_norm(at, {"attn_norm", hf.attention_norm});
    if (const TensorName fused{"attn_qkv.weight", hf.qkv}; folder ? !hf.qkv.empty() : at.has(fused)) {
      LinearPart qkv = matrix(fused, c.qkv_dim());
      if (folder && hf.qkv_by_head) qkv.stored_by = {.groups = c.heads, .members = 3};
      layer.qkv = at.linear({qkv}, c.hidden);
    } else {
      layer.qkv = at.linear({matrix({"attn_q.weight", "self_attn.q_proj.weight"}, c.q_dim()),
                             matrix({"attn_k.weight", "self_attn.k_proj.weight"}, c.kv_dim()),
                             matrix({"attn_v.weight", "self_attn.v_proj.weight"}, c.kv_dim())},
                            c.hidden);
    }
    layer.out = at.linear({matrix({"attn_output.weight", hf.out}, c.hidden)}, c.q_dim());
    if (residual != Residual::ParallelShared) layer.feed_norm = read_norm(at, {"ffn_norm", hf.feed_norm});
    const LinearPart up = matrix({"ffn_up.weight", hf.up}, c.feed_forward);
    layer.up = gated_ ? at.gate_up({matrix({"ffn_gate.weight", hf.gate}, c.feed_forward), up}, c.hidden, activation)
                      : at.linear({up}, c.hidden);
    layer.down = at.linear({matrix({"ffn_down.weight", hf.down}, c.hidden)}, c.feed_forward);
    layer.state = state.paged({c.kv_heads, c.head_dim, c.head_dim});
    layer.window = c.window;
    layer.score_scale = 1 / std::sqrt(float(c.head_dim));
  }
  const bool norm_biases = !layers.empty() && layers.front().attention_norm.bias != nullptr;
  if (final_norm && norm_biases) w.require({"output_norm.bias", hf.base + hf.norm + ".bias"});
  if (final_norm) norm = read_norm(w, {"output_norm", hf.base + hf.norm});
  const TensorName own{"output.weight", hf.head};
  head = w.linear({{.name = output_head_name(w, own, table), .rows = c.vocab, .bias_of = own}}, embedded);
}

void LayerNormDecoder::forward(Pass& p) const {
  const bool parallel = residual == Residual::Parallel || residual == Residual::ParallelShared;
  const Rope rotation = rope.table != nullptr ? p.rope(rope, rope_style) : Rope{};
  Matrix hidden = embed(p);
  for (const LayerNormLayer& layer : layers) {
    Matrix normed = norm_before(p, hidden, layer.attention_norm);
    Matrix attended = attend(p, layer, normed, layer.rotates ? rotation : Rope{});
    if (&layer == &layers.back()) {
      residual == Residual::ParallelShared ? p.narrow({&hidden, &attended, &normed}) : p.narrow({&hidden, &attended});
    }
    if (!parallel) {
      p.add_linear(attended, layer.out, hidden);
      norm_after(p, hidden, layer.attention_norm);
    }
    if (residual != Residual::ParallelShared) normed = norm_before(p, hidden, layer.feed_norm);
    const Matrix feed = p.feed_forward(normed, layer.up, gated_, activation);
    if (parallel) p.add_linear(attended, layer.out, hidden);
    p.add_linear(feed, layer.down, hidden);
    norm_after(p, hidden, layer.feed_norm);
  }
  p.last = p.buffer("last", config_.hidden);
  if (final_norm) {
    p.layer_norm(hidden, norm.weight, norm.bias, p.last);
  } else {
    p.ops.copy(hidden, p.last);
  }
  Matrix last = p.last;
  if (project_out != nullptr) {
    last = p.buffer("projected", embedded);
    p.linear(p.last, project_out, last);
  }
  p.head(last, head);
  if (logit_scale != 1) p.ops.scale(p.logits, logit_scale);
}

Matrix LayerNormDecoder::embed(Pass& p) const {
  Matrix hidden;
  if (project_in != nullptr) {
    const Matrix narrow = p.buffer("projected", embedded);
    p.ops.embed({.table = *embedding, .ids = p.batch.tokens, .out = narrow, .chosen = p.batch.chosen});
    hidden = p.buffer("hidden", DType::F32, p.rows(), config_.hidden);
    p.linear(narrow, project_in, hidden);
  } else {
    hidden = p.embed(*embedding);
  }
  if (positions == nullptr) return hidden;
  WeightView table = *positions;  // begins at the row of position 0
  table.data = positions->row(position_offset);
  table.rows -= position_offset;
  p.ops.embed({.table = table, .ids = p.batch.positions, .accumulate = true, .out = hidden});
  return hidden;
}

Matrix LayerNormDecoder::norm_before(Pass& p, Matrix hidden, const LayerNormWeights& weights) const {
  const Matrix normed = p.buffer("normed", hidden.cols);
  if (residual != Residual::NormAfter) {
    p.layer_norm(hidden, weights.weight, weights.bias, normed);
  } else {
    p.ops.copy(hidden, normed);  // linear layers take the working type
  }
  return normed;
}

void LayerNormDecoder::norm_after(Pass& p, Matrix hidden, const LayerNormWeights& weights) const {
  if (residual == Residual::NormAfter) p.layer_norm(hidden, weights.weight, weights.bias, hidden);
}

Matrix LayerNormDecoder::attend(Pass& p, const LayerNormLayer& layer, Matrix x, const Rope& rotation) const {
  const DecoderConfig& c = config_;
  const Matrix qkv = p.buffer("qkv", c.qkv_dim()), attended = p.buffer("attended", c.q_dim());
  const Matrix q = qkv.columns(0, c.q_dim()), k = qkv.columns(c.q_dim(), c.kv_dim());
  const Matrix v = qkv.columns(c.q_dim() + c.kv_dim(), c.kv_dim());
  p.linear(x, layer.qkv, qkv);
  if (layer.q_norm.weight != nullptr) p.head_layer_norm(q, c.heads, layer.q_norm.weight, layer.q_norm.bias);
  if (layer.k_norm.weight != nullptr) p.head_layer_norm(k, c.kv_heads, layer.k_norm.weight, layer.k_norm.bias);
  const AttentionSettings settings{.heads = c.heads, .scale = layer.score_scale, .window = layer.window};
  p.attend(layer.state, q, k, v, rotation, settings, attended);
  return attended;
}

}  // namespace millrace
