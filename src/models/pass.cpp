#include "models/pass.h"

#include "base/error.h"

namespace millrace {
namespace {

const float* data(const Vector* vector) { return vector != nullptr ? vector->data : nullptr; }

}  // namespace

Pass::Pass(Ops& o, Activations& buffers, StateCache& state, const DecoderConfig& c, const PlacedBatch& b)
    : ops(o), batch(b), config(c), buffers_(buffers), state_(state), rows_(std::ssize(b.tokens)) {
  ops.adapt_rows(b.adapters);
}

// The buffer has room for the rows that batch-invariant plans add as padding.
Matrix Pass::buffer(std::string_view name, DType dtype, int64_t rows, int64_t cols) {
  return buffers_.request(name, dtype, ops.padded_rows(rows), cols).first_rows(rows);
}

Matrix Pass::embed(const WeightView& table, float scale) {
  const Matrix hidden = buffer("hidden", DType::F32, rows_, table.cols);
  ops.embed_tokens({.table = table, .ids = batch.tokens, .scale = scale, .out = hidden, .chosen = batch.chosen});
  return hidden;
}

NormOp::Args Pass::norm_args(Matrix x, const Vector* weight, Matrix out) const {
  return {NormKind::Rms, x, out, weight->data, nullptr, config.norm_epsilon};
}

void Pass::rms_norm(Matrix x, const Vector* weight, Matrix out) { ops.norm(norm_args(x, weight, out)); }

void Pass::layer_norm(Matrix x, const Vector* weight, const Vector* bias, Matrix out) {
  ops.norm({NormKind::Layer, x, out, data(weight), data(bias), config.norm_epsilon});
}

void Pass::group_norm(Matrix x, const Vector* weight) {
  const auto groups = static_cast<int>(x.cols / weight->n);
  ops.norm({NormKind::Rms, x, x, weight->data, nullptr, config.norm_epsilon, groups});
}

void Pass::head_layer_norm(Matrix x, int heads, const Vector* weight, const Vector* bias) {
  NormOp::Args args{NormKind::Layer, x, x, data(weight), data(bias), config.norm_epsilon, heads};
  args.weights_per_group = weight != nullptr && weight->n == x.cols;
  ops.norm(args);
}

// Calls run(input): a norm, or rows in the working type.
template <class Run>
void Pass::with_input(const Normed& x, Run run) {
  if (x.weight == nullptr && x.x.dtype == ops.working()) return run(x.x);
  const Matrix input = buffer("normed", ops.working(), x.x.rows, x.x.cols);
  if (x.weight != nullptr) return run(norm_args(x.x, x.weight, input));
  ops.copy(x.x, input);
  run(input);
}

void Pass::linear(const Normed& x, const Linear* weights, Matrix y) {
  with_input(x, [&](const auto& input) { ops.linear(input, *weights, y); });
}

void Pass::add(Matrix y, const Normed& x) {
  NormOp::Args args = norm_args(x.x, x.weight, y);
  args.accumulate = true;
  ops.norm(args);
}

Matrix Pass::gated_linear(const Normed& x, const Linear* weights, Activation activation) {
  return gate(x, weights, activation);
}
Matrix Pass::gated_linear(Matrix x, const Linear* weights, Activation activation) {
  return gate(x, weights, activation);
}

template <class X>
Matrix Pass::gate(const X& x, const Linear* weights, Activation activation) {
  const int64_t width = weights->n / 2;
  const Matrix feed = buffer("feed", width);
  if (weights->gated && !ops.adapts(*weights)) {
    linear(x, weights, feed);
    return feed;
  }
  const Matrix gate_up = buffer("gate_up", weights->n), up = gate_up.columns(width, width);
  if (weights->gated) {
    with_input(x, [&](const auto& input) { ops.gated_linear(input, *weights, gate_up, feed); });
    return feed;
  }
  linear(x, weights, gate_up);
  ops.activate(activation, gate_up.columns(0, width), &up, feed);
  return feed;
}

Matrix Pass::feed_forward(Matrix x, const Linear* up, bool gated, Activation activation) {
  if (gated) return gated_linear(x, up, activation);
  const Matrix feed = buffer("feed", up->n);
  linear(x, up, feed);
  ops.activate(activation, feed, nullptr, feed);
  return feed;
}

Rope Pass::rope(const RopeFrequencies& f, RopeStyle style, std::string_view table) {
  // GPU kernels read the angles row after row, without padding.
  const int64_t cols = 2 * f.table->n;
  const Matrix angles{DType::F32, rows_, cols, cols, buffers_.request(table, DType::F32, 1, rows_ * cols).data};
  ops.rope_angles({.positions = batch.positions,
                   .usual = {f.table->data, f.magnitude},
                   .long_from = f.long_from,
                   .extended = {f.table_long != nullptr ? f.table_long->data : nullptr, f.magnitude_long},
                   .horizons = batch.horizons,
                   .angles = angles});
  return {angles, style};
}

void Pass::rotate(Matrix x, int heads, const Rope& rope) {
  const auto rotary = static_cast<int>(rope.angles.cols);
  if (rotary > 0) ops.rope({rope.style, x, rope.angles, heads, static_cast<int>(x.cols / heads), rotary});
}

AttentionArgs Pass::attention_args(int state, Matrix q, const AttentionSettings& s, Matrix out) const {
  return {.q = q,
          .out = out,
          .kv = state_.paged(state),
          .sequences = batch.sequences,
          .heads = s.heads,
          .scale = s.scale,
          .softcap = s.softcap,
          .window = s.window,
          .bidirectional = s.bidirectional,
          .sinks = s.sinks != nullptr ? s.sinks->data : nullptr,
          .tables = batch.tables};
}

// Calibrated maxima belong to the layer that stores keys and values, so they do not apply here.
void Pass::attend_stored(int state, Matrix q, const AttentionSettings& s, Matrix out) {
  ops.attention(attention_args(state, q, s, out));
}

void Pass::attend(int state, Matrix q, Matrix k, Matrix v, const Rope& rope, const AttentionSettings& s, Matrix out) {
  AttentionArgs args = attention_args(state, q, s, out);
  const RopeWriteOp::Args write{rope.style, q, k, v, rope.angles, args.kv, s.heads, batch.sequences, batch.tables};
  if (scores != nullptr && !scores->phi.empty()) args.phi = scores->phi[static_cast<size_t>(state)];
  const HeadNorms norms{s.q_norm != nullptr ? s.q_norm->data : nullptr, s.k_norm != nullptr ? s.k_norm->data : nullptr,
                        config.norm_epsilon};
  if (!observes_scores()) return ops.attention(write, args, norms);
  ops.norm_heads(write, norms);
  ops.rope_write(write);
  attend_written(state, q, s, out);
}

void Pass::write_latent(int state, LatentWriteOp::Args args) {
  args.kv = state_.paged(state);
  args.sequences = batch.sequences;
  args.tables = batch.tables;
  ops.call<LatentWriteOp>({args.kv.dtype, args.style, ops.bucket(args.row.rows), args.heads, args.plain_dim(),
                           args.rotary_dim(), args.kv.value_dim},
                          args);
}

void Pass::attend_written(int state, Matrix q, const AttentionSettings& s, Matrix out) {
  attend_written(state, q, s, out, batch.sequences.size());
}

void Pass::attend_written(int state, Matrix q, const AttentionSettings& s, Matrix out, size_t sequences) {
  AttentionArgs args = attention_args(state, q, s, out);
  args.sequences = args.sequences.first(sequences);
  args.tables.longest_slice = 0;  // of these: kernels launch for it
  for (const SequenceSlice& slice : args.sequences)
    args.tables.longest_slice = std::max(args.tables.longest_slice, slice.rows);
  if (scores != nullptr && !scores->phi.empty()) args.phi = scores->phi[static_cast<size_t>(state)];
  if (observes_scores()) ops.score_range({args, scores->observed + int64_t{state} * s.heads});
  ops.attention(args);
}

void Pass::narrow(std::initializer_list<Matrix*> kept) {
  narrowed_ = true;
  if (batch.wants_every_row) return;
  ops.adapt_rows(batch.wanted_adapters);
  rows_ = std::ssize(batch.logit_rows);
  constexpr std::string_view kNames[] = {"wanted 0", "wanted 1", "wanted 2", "wanted 3"};
  const std::string_view* name = kNames;
  MR_ASSERT(kept.size() <= std::size(kNames));
  for (Matrix* matrix : kept) {
    const Matrix wanted = buffer(*name++, matrix->dtype, rows_, matrix->cols);
    ops.gather(*matrix, batch.logit_rows, wanted);
    *matrix = wanted;
  }
}

Matrix Pass::pool(Matrix x, PoolKind kind) {
  const Matrix pooled = buffer("pooled", ops.working(), std::ssize(batch.sequences), x.cols);
  ops.call<PoolOp>({kind, ops.bucket(x.rows), x.cols}, {kind, x, pooled, batch.sequences, batch.tables});
  return pooled;
}

void Pass::head(const Normed& x, const Linear* weights) {
  last = buffer("last", x.x.cols);
  const NormOp::Args norm = norm_args(x.x, x.weight, last);
  if (batch.without_logits > 0) {  // some rows want the normed hidden states
    ops.norm(norm);
    return head(last, weights);
  }
  MR_ASSERT(narrowed_);
  logits = buffer("logits", DType::F32, rows_, weights->n);
  ops.linear(norm, *weights, logits);
}

void Pass::head(Matrix x, const Linear* weights) {
  MR_ASSERT(narrowed_);
  logits = buffer("logits", DType::F32, rows_ - batch.without_logits, weights->n);
  ops.linear(x.first_rows(logits.rows), *weights, logits);
}

}  // namespace millrace
