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

namespace {

// Rows start where a GPU can load sixteen bytes at once.
int64_t padded(int64_t cols) { return (cols + 7) / 8 * 8; }

}  // namespace

std::vector<Activations::Buffer> Activations::buffers(const Sizes& s) {
  const PassWidths& w = s.widths;
  const DType residual = ActivationTypes::kResidual, working = s.types.working;
  return {
      {&Activations::hidden, residual, s.rows, w.hidden},    {&Activations::residual, residual, s.rows, w.hidden},
      {&Activations::normed, working, s.rows, w.hidden},     {&Activations::qkv, working, s.rows, w.qkv},
      {&Activations::attended, working, s.rows, w.attended}, {&Activations::gate_up, working, s.rows, w.gate_up},
      {&Activations::feed, working, s.rows, w.feed},         {&Activations::wanted, residual, s.logit_rows, w.hidden},
      {&Activations::last, working, s.logit_rows, w.hidden}, {&Activations::logits, DType::F32, s.logit_rows, w.vocab},
  };
}

size_t Activations::bytes(const Sizes& s) {
  size_t total = 2 * Arena::padded(static_cast<size_t>(s.rows) * row_bytes(DType::F32, s.widths.rotary));
  for (const Buffer& b : buffers(s))
    total += Arena::padded(static_cast<size_t>(b.rows) * row_bytes(b.dtype, padded(b.cols)));
  return total;
}

Activations::Activations(const Sizes& s, Memory& memory)
    : arena_(std::make_unique<Arena>("activations", bytes(s), memory)) {
  for (const Buffer& b : buffers(s)) {
    Matrix& matrix = this->*b.matrix;
    matrix = arena_->matrix(b.dtype, b.rows, padded(b.cols));
    matrix.cols = b.cols;
  }
  for (auto& table : angles) table = arena_->matrix(DType::F32, s.rows, s.widths.rotary);
}

Pass::Pass(Ops& o, Activations& buffers, StateCache& kv, const DecoderConfig& c, const PlacedBatch& b)
    : ops(o), batch(b), config(c), buffers_(buffers), kv_(kv) {
  const auto rows = static_cast<int64_t>(b.tokens.size());
  hidden = buffers.hidden.first_rows(rows);
  normed = buffers.normed.first_rows(rows);
  residual = buffers.residual.first_rows(rows);
  qkv = buffers.qkv.first_rows(rows);
  attended = buffers.attended.first_rows(rows);
  gate_up = buffers.gate_up.first_rows(rows);
  feed = buffers.feed.first_rows(rows);
  last = buffers.last.first_rows(static_cast<int64_t>(b.logit_rows.size()));
  logits = buffers.logits.first_rows(last.rows - b.without_logits);
  q = qkv.columns(0, c.q_dim());
  k = qkv.columns(c.q_dim(), c.kv_dim());
  v = qkv.columns(c.q_dim() + c.kv_dim(), c.kv_dim());
  positions = b.positions;
}

void Pass::rms_norm(Matrix x, const float* weight, Matrix out) {
  ops.norm({NormKind::Rms, x, out, weight, nullptr, config.norm_epsilon});
}

void Pass::linear(const Normed& x, const Linear* weights, Matrix y) {
  ops.linear({NormKind::Rms, x.x, normed, x.weight, nullptr, config.norm_epsilon}, *weights, y);
}

void Pass::add_linear(Matrix x, const Linear* weights, Matrix y, const Following& next) {
  ops.add_linear(x, *weights, y, {{NormKind::Rms, y, normed, next.norm, nullptr, config.norm_epsilon}, next.linear});
}

void Pass::layer_norm(Matrix x, const float* weight, const float* bias, Matrix out) {
  ops.norm({NormKind::Layer, x, out, weight, bias, config.norm_epsilon});
}

void Pass::head_norm(Matrix x, int heads, const float* weight) {
  ops.norm({NormKind::Rms, x, x, weight, nullptr, config.norm_epsilon, heads});
}

void Pass::prepare_rope(const RopeFrequencies& f, int table) {
  ops.rope_angles({.positions = positions,
                   .usual = {f.table, f.magnitude},
                   .long_from = f.long_from,
                   .extended = {f.table_long, f.magnitude_long},
                   .horizons = batch.horizons,
                   .angles = buffers_.angles[table].first_rows(hidden.rows)});
}

void Pass::turn(RopeStyle style, int table) {
  turn_style_ = style;
  turn_angles_ = buffers_.angles[table].first_rows(hidden.rows);
}

void Pass::attend(int64_t layer, const AttentionSettings& s) {
  const KvLayer kv = kv_.paged(static_cast<int>(layer));
  const RopeWriteOp::Args rope{turn_style_, q, k, v, turn_angles_, kv, config.heads, batch.sequences, batch.tables};
  AttentionArgs args{.q = q,
                     .out = attended,
                     .kv = kv,
                     .sequences = batch.sequences,
                     .heads = config.heads,
                     .scale = s.scale,
                     .softcap = s.softcap,
                     .window = s.window,
                     .tables = batch.tables};
  if (scores != nullptr && !scores->phi.empty()) args.phi = scores->phi[static_cast<size_t>(layer)];
  if (scores == nullptr || scores->observed == nullptr) {
    ops.attention(rope, args);
  } else {
    ops.rope_write(rope);
    ops.score_range({args, scores->observed + layer * config.heads});
    ops.attention(args);
  }
  if (layer + 1 == config.layers) keep_wanted_rows();
}

void Pass::keep_wanted_rows() {
  if (batch.wants_every_row) return;
  const int64_t rows = last.rows;
  const Matrix kept_hidden = buffers_.wanted.first_rows(rows), kept_attended = q.first_rows(rows);
  ops.gather(hidden, batch.logit_rows, kept_hidden);
  ops.gather(attended, batch.logit_rows, kept_attended);  // to where the queries were
  hidden = kept_hidden;
  attended = kept_attended;
  for (Matrix* buffer : {&normed, &residual, &gate_up, &feed}) *buffer = buffer->first_rows(rows);
}

void Pass::gated_linear(Matrix x, const Linear* weights, Activation activation) {
  if (weights->gated) return ops.linear(x, *weights, feed);
  ops.linear(x, *weights, gate_up);
  activate_gate(activation);
}

void Pass::gated_linear(const Normed& x, const Linear* weights, Activation activation) {
  if (weights->gated) return linear(x, weights, feed);
  linear(x, weights, gate_up);
  activate_gate(activation);
}

void Pass::activate_gate(Activation activation) {
  const Matrix up = gate_up.columns(feed.cols, feed.cols);
  ops.activate(activation, gate_up.columns(0, feed.cols), &up, feed);
}

void Pass::linear_of_wanted(const Normed& x, const Linear* head) {
  const NormOp::Args norm{NormKind::Rms, x.x, last, x.weight, nullptr, config.norm_epsilon};
  if (batch.without_logits == 0) return ops.linear(norm, *head, logits);
  ops.norm(norm);  // of some rows the norm itself is wanted
  linear(last, head, logits);
}

}  // namespace millrace
