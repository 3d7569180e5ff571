#include "dataflow/roofline.h"

#include <algorithm>

namespace millrace {
namespace {

double least_us(const Work& work, double peak_gops, const Hardware& hardware) {
  return std::max(work.bytes / hardware.ceilings.read_gbs, work.operations / peak_gops) * 1e-3;
}

double peak_gops(DType format, Precision precision, const Ceilings& c) {
  if (precision == Precision::Exact || format == DType::F32) return c.f32_gflops;
  return is_quantized(format) ? c.int8_gops : std::max(c.bf16_gflops, c.f32_gflops);
}

double bytes_of(const Matrix& m) { return double(m.rows) * double(row_bytes(m.dtype, m.cols)); }

// A step reads and writes the f32 state of each sequence once, whatever its rows.
double state_bytes(size_t sequences, int64_t elements) { return 8 * double(sequences) * double(elements); }

// Matrix units compute recurrences in chunks of rows.
double recurrence_us(const Work& work, DType inputs, const Hardware& h) {
  const bool matrix_units = h.device == DeviceKind::Cuda && inputs != DType::F32;
  return least_us(work, matrix_units ? h.ceilings.bf16_gflops : h.ceilings.f32_gflops, h);
}

template <class Problem>
double attention_gflops(const Problem& p, const Hardware& h) {
  const bool matrix_units = h.device == DeviceKind::Cuda && p.precision == Precision::Fast && p.kv != DType::F32;
  return matrix_units ? h.ceilings.bf16_gflops : h.ceilings.f32_gflops;
}

}  // namespace

Work work_of(const LinearProblem& p) {
  const double weights = double(p.n) * double(row_bytes(p.format, p.k));
  const double activations = 4.0 * double(p.m) * double(p.k + p.n);
  return {weights + activations, 2.0 * double(p.m) * double(p.n) * double(p.k)};
}

// The matrices that so many rows choose on average are read once.
Work work_of(const GroupedLinearProblem& p) {
  const double weights = p.expected_active() * double(p.n) * double(row_bytes(p.format, p.k));
  const auto rows = double(p.rows), pairs = p.expected_pairs();
  const double inputs = double(p.k) * (p.sum ? pairs : rows);
  const double outputs = double(p.gated ? p.n / 2 : p.n) * (p.sum ? rows : pairs);
  return {weights + 4.0 * (inputs + outputs), 2.0 * pairs * double(p.n) * double(p.k)};
}

Work work_of(const AttentionProblem& p) {
  // Each sequence reads its keys and values once. A new row attends to the whole past and on average to half of the new
  // rows.
  const double per_sequence = double(p.rows) / double(std::max<int64_t>(1, p.sequences));
  const double visible =
      p.window > 0 ? std::min<double>(double(p.context), p.window + per_sequence) : double(p.context);
  const double kv = double(p.sequences) * visible * p.kv_heads *
                    double(row_bytes(p.kv, p.key_dim) + (p.latent ? 0 : row_bytes(p.kv, p.value_dim)));
  const double io = 4.0 * double(p.rows) * p.heads * (p.key_dim + p.value_dim);
  const double seen = std::max(1.0, p.bidirectional ? visible : visible - per_sequence / 2);
  return {kv + io, 2.0 * double(p.rows) * seen * p.heads * (p.key_dim + p.value_dim)};
}

Work work_of(const LatentPromptOp::Problem& p) {
  const double kv = double(p.context) * double(row_bytes(p.kv, p.latent_dim + p.rotary_dim));
  const double io = 4.0 * double(p.rows) * p.heads * (p.query_dim() + p.value_dim);
  const double expansion = double(p.context) * p.heads * p.latent_dim * (p.plain_dim + p.value_dim);
  return {kv + io, 2 * (double(p.rows) * p.seen() * p.heads * (p.query_dim() + p.value_dim) + expansion)};
}

Work work_of(const CausalConvOp::Args& a) {
  return {bytes_of(a.x) + bytes_of(a.out) + state_bytes(a.sequences.size(), (a.taps - 1) * a.x.cols),
          2.0 * a.taps * double(a.x.rows) * double(a.x.cols)};
}

// Three multiply-adds for each element of the state: S^T k, the change, S^T q.
Work work_of(const DeltaRuleOp::Args& a) {
  double bytes = state_bytes(a.sequences.size(), a.shape.state_elements());
  for (const Matrix* m : {&a.q, &a.k, &a.v, &a.a, &a.b, &a.out}) bytes += bytes_of(*m);
  return {bytes, 6 * double(a.v.rows) * double(a.shape.state_elements())};
}

// Two multiply-adds for each element of the state: the input, S^T C.
Work work_of(const SsmScanOp::Args& a) {
  double bytes = state_bytes(a.sequences.size(), a.shape.state_elements());
  for (const Matrix* m : {&a.x, &a.b, &a.c, &a.dt, &a.out}) bytes += bytes_of(*m);
  return {bytes, 4 * double(a.x.rows) * double(a.shape.state_elements())};
}

double roof_us(const LinearProblem& p, const Hardware& h) {
  return least_us(work_of(p), peak_gops(p.format, p.precision, h.ceilings), h);
}

double roof_us(const GroupedLinearProblem& p, const Hardware& h) {
  return least_us(work_of(p), peak_gops(p.format, p.precision, h.ceilings), h);
}

double roof_us(const AttentionProblem& p, const Hardware& h) { return least_us(work_of(p), attention_gflops(p, h), h); }

double roof_us(const LatentPromptOp::Problem& p, const Hardware& h) {
  return least_us(work_of(p), attention_gflops(p, h), h);
}

double roof_us(const CausalConvOp::Args& a, const Hardware& h) {
  return least_us(work_of(a), h.ceilings.f32_gflops, h);
}
double roof_us(const DeltaRuleOp::Args& a, const Hardware& h) { return recurrence_us(work_of(a), a.v.dtype, h); }
double roof_us(const SsmScanOp::Args& a, const Hardware& h) { return recurrence_us(work_of(a), a.x.dtype, h); }

}  // namespace millrace
