#include "models/pass.h"

namespace millrace {

PassWidths common_widths(const DecoderConfig& c) {
  return {.hidden = c.hidden,
          .qkv = c.qkv_dim(),
          .attended = c.q_dim(),
          .gate_up = 2 * c.feed_forward,
          .feed = c.feed_forward,
          .rotary = c.rotary_dim,
          .vocab = c.vocab};
}

size_t Activations::bytes(const PassWidths& w, int64_t rows, int64_t logit_rows) {
  size_t total = 0;
  const auto add = [&](int64_t r, int64_t cols) {
    total += Arena::padded(static_cast<size_t>(r) * row_bytes(DType::F32, cols));
  };
  for (const int64_t cols : {w.hidden, w.hidden, w.hidden, w.qkv, w.attended, w.gate_up, w.feed, w.rotary, w.rotary})
    add(rows, cols);
  add(logit_rows, w.hidden);
  add(logit_rows, w.vocab);
  return total;
}

Activations::Activations(const PassWidths& w, int64_t rows, int64_t logit_rows)
    : positions(static_cast<size_t>(rows)), arena_("activations", bytes(w, rows, logit_rows)) {
  const auto buffer = [&](int64_t r, int64_t cols) { return arena_.matrix(DType::F32, r, cols); };
  hidden = buffer(rows, w.hidden);
  normed = buffer(rows, w.hidden);
  residual = buffer(rows, w.hidden);
  qkv = buffer(rows, w.qkv);
  attended = buffer(rows, w.attended);
  gate_up = buffer(rows, w.gate_up);
  feed = buffer(rows, w.feed);
  for (auto& table : angles) table = buffer(rows, w.rotary);
  selected = buffer(logit_rows, w.hidden);
  logits = buffer(logit_rows, w.vocab);
}

Pass::Pass(Ops& o, Activations& buffers, KvCache& kv, const DecoderConfig& c, const Batch& b)
    : ops(o), batch(b), config(c), buffers_(buffers), kv_(kv) {
  const auto rows = static_cast<int64_t>(b.tokens.size());
  hidden = buffers.hidden.first_rows(rows);
  normed = buffers.normed.first_rows(rows);
  residual = buffers.residual.first_rows(rows);
  qkv = buffers.qkv.first_rows(rows);
  attended = buffers.attended.first_rows(rows);
  gate_up = buffers.gate_up.first_rows(rows);
  feed = buffers.feed.first_rows(rows);
  logits = buffers.logits.first_rows(static_cast<int64_t>(b.logit_rows.size()) - b.without_logits);
  q = qkv.columns(0, c.q_dim());
  k = qkv.columns(c.q_dim(), c.kv_dim());
  v = qkv.columns(c.q_dim() + c.kv_dim(), c.kv_dim());
  for (const auto& slice : b.sequences) {
    for (int32_t i = 0; i < slice.rows; ++i)
      buffers.positions[static_cast<size_t>(slice.first_row + i)] = slice.past + i;
  }
  positions = std::span(buffers.positions).first(static_cast<size_t>(rows));
}

void Pass::rms_norm(Matrix x, const float* weight, Matrix out) {
  ops.norm({NormKind::Rms, x, out, weight, nullptr, config.norm_epsilon});
}

void Pass::layer_norm(Matrix x, const float* weight, const float* bias, Matrix out) {
  ops.norm({NormKind::Layer, x, out, weight, bias, config.norm_epsilon});
}

void Pass::head_norm(Matrix x, int heads, const float* weight) {
  ops.norm({NormKind::Rms, x, x, weight, nullptr, config.norm_epsilon, heads});
}

void Pass::prepare_rope(const RopeFrequencies& f, int table) {
  for (const auto& slice : batch.sequences) {
    const bool is_long = f.long_from > 0 && std::max(slice.horizon, slice.past + slice.rows) > f.long_from;
    Matrix angles = buffers_.angles[table].first_rows(slice.rows);
    angles.data += static_cast<size_t>(slice.first_row * angles.stride) * sizeof(float);
    ops.rope_angles(positions.subspan(static_cast<size_t>(slice.first_row), static_cast<size_t>(slice.rows)),
                    is_long ? f.inverse_long : f.inverse, is_long ? f.magnitude_long : f.magnitude, angles);
  }
}

void Pass::turn(RopeStyle style, int table) {
  const Matrix angles = buffers_.angles[table].first_rows(hidden.rows);
  ops.rope({style, q, angles, config.heads, config.head_dim, config.rotary_dim});
  ops.rope({style, k, angles, config.kv_heads, config.head_dim, config.rotary_dim});
}

void Pass::attend(int64_t layer, const AttentionSettings& s) {
  const KvLayer kv = kv_.layer(static_cast<int>(layer));
  ops.kv_write(k, v, kv, batch.sequences);
  ops.attention({q, attended, kv, batch.sequences, config.heads, s.scale, s.softcap, s.window});
}

void Pass::gate(Activation activation) {
  const Matrix up = gate_up.columns(feed.cols, feed.cols);
  ops.activate(activation, gate_up.columns(0, feed.cols), &up, feed);
}

Matrix Pass::select_rows(Matrix x) {
  const Matrix chosen = buffers_.selected.first_rows(static_cast<int64_t>(batch.logit_rows.size()));
  ops.gather(x, batch.logit_rows, chosen);
  return chosen;
}

}  // namespace millrace
