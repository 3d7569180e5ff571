#include "models/hybrid.h"

#include <cmath>

namespace millrace {
namespace {

// factor * norm(x), or the norm itself, which the consuming op may compute.
Normed scaled(Pass& p, const Normed& x, float factor, std::string_view name) {
  if (factor == 1) return x;
  const Matrix out = p.buffer(name, x.x.cols);
  p.rms_norm(x.x, x.weight, out);
  p.ops.scale(out, factor);
  return {out, nullptr};
}

// hidden += factor * linear(x)
void add_scaled(Pass& p, Matrix x, const Linear* linear, float factor, Matrix hidden) {
  if (factor == 1) return p.add_linear(x, linear, hidden);
  const Matrix branch = p.buffer("branch", DType::F32, x.rows, hidden.cols);
  p.linear(x, linear, branch);
  p.ops.scale(branch, factor);
  p.ops.add(hidden, branch, hidden);
}

}  // namespace

Hybrid::Hybrid(DecoderConfig c) : config_(std::move(c)) {
  if (config_.head_dim > 0) score_scale = 1 / std::sqrt(float(config_.head_dim));
}

void Hybrid::add_attention(HybridLayer& layer, Weights::Layer& at, StateLayout& state) const {
  layer.attention = load_attention(at, config_);
  layer.state = state.paged({config_.kv_heads, config_.head_dim, config_.head_dim});
}

void Hybrid::load_ends(Weights& w, const TensorName& table, const TensorName& final_norm) {
  embedding = w.table(table, config_.vocab, config_.hidden);
  norm = w.vector(final_norm, config_.hidden);
  head = load_output_head(w, config_, {"output.weight", "lm_head.weight"}, table);
}

void Hybrid::multiply_blocks_by(double m) {
  embedding_scale = static_cast<float>(embedding_scale / m);
  config_.norm_epsilon = static_cast<float>(config_.norm_epsilon / (m * m));
}

// Only the rows whose logits are wanted pass the output matrices of the last layer that mixes rows.
void Hybrid::mix(Pass& p, const HybridLayer& layer, const Rope& angles, bool last, Matrix& hidden) const {
  const Normed x = p.rms_norm(hidden, layer.norm);
  Matrix attended, mixed, convolved;
  if (layer.mamba) mixed = mamba2_block(p, *layer.mamba, scaled(p, x, factors.mamba_in, "mamba input"));
  if (layer.conv) convolved = short_conv_block(p, *layer.conv, x);
  if (layer.attention) {
    const AttentionSettings settings{.heads = config_.heads, .scale = score_scale};
    attended = attention_block(p, *layer.attention, scaled(p, x, factors.attention_in, "attention input"), layer.state,
                               angles, settings);
  }
  if (last && layer.mamba && layer.attention) p.narrow({&hidden, &mixed, &attended});
  if (last && layer.mamba && !layer.attention) p.narrow({&hidden, &mixed});
  if (last && !layer.mamba) p.narrow({&hidden, layer.conv ? &convolved : &attended});
  if (layer.mamba) add_scaled(p, mixed, layer.mamba->out, factors.mamba_out, hidden);
  if (layer.conv) p.add_linear(convolved, layer.conv->out, hidden);
  if (layer.attention) add_scaled(p, attended, layer.attention->out, factors.attention_out, hidden);
}

void Hybrid::feed(Pass& p, const HybridLayer& layer, Matrix hidden) const {
  const Normed x = p.rms_norm(hidden, layer.feed_norm);
  if (layer.experts) return add_experts(p, *layer.experts, x, activation, hidden);
  const Linear* in = layer.feed.gate_up;
  Matrix out;
  if (layer.gated && factors.gate == 1) {
    out = p.gated_linear(x, in, activation);
  } else {
    const int64_t width = layer.gated ? in->n / 2 : in->n;
    const Matrix all = p.buffer("gate_up", in->n), gate = all.columns(0, width);
    const Matrix up = all.columns(in->n - width, width);
    p.linear(x, in, all);
    if (factors.gate != 1) p.ops.scale(gate, factors.gate);
    out = p.buffer("feed", width);
    p.ops.activate(activation, gate, layer.gated ? &up : nullptr, out);
  }
  add_scaled(p, out, layer.feed.down, factors.feed_out, hidden);
}

void Hybrid::forward(Pass& p) const {
  const Rope angles = rotates ? p.rope(rope, rope_style) : Rope{};
  const HybridLayer* last = nullptr;
  for (const HybridLayer& layer : layers) last = layer.mixes() ? &layer : last;
  Matrix hidden = p.embed(*embedding, embedding_scale);
  if (last == nullptr) p.narrow({&hidden});
  for (const HybridLayer& layer : layers) {
    if (layer.mixes()) mix(p, layer, angles, &layer == last, hidden);
    if (layer.feed_norm != nullptr) feed(p, layer, hidden);
  }
  p.head(p.rms_norm(hidden, norm), head);
  if (logit_scale != 1) p.ops.scale(p.logits, logit_scale);
}

}  // namespace millrace
