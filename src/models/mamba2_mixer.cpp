#include "models/mamba2_mixer.h"

#include <cmath>

namespace millrace {

Mamba2Shape read_mamba2_shape(const WeightSource& source, const Mamba2Keys& keys, int64_t inner) {
  constexpr int64_t kMost = 1 << 16;
  const Config& config = source.config();
  const auto count = [&](ConfigKey key, int64_t usual) {
    if (is_gguf(source)) return config.integer(key, {1, kMost});
    return config.optional_integer(key, {1, kMost}).value_or(usual);
  };
  Mamba2Shape shape;
  SsmShape& scan = shape.scan;
  const ConfigKey heads{keys.heads, "ssm.time_step_rank"}, groups{keys.groups, "ssm.group_count"};
  scan.heads = static_cast<int>(count(heads, keys.usual_heads));
  scan.groups = static_cast<int>(count(groups, keys.usual_groups));
  scan.state = static_cast<int>(count({keys.state, "ssm.state_size"}, keys.usual_state));
  shape.taps = static_cast<int>(count({keys.taps, "ssm.conv_kernel"}, 4));
  if (is_gguf(source)) inner = config.integer({.gguf = "ssm.inner_size"}, {1, 1 << 22});
  if (inner % scan.heads != 0) config.fail_key(heads, "must divide the inner size of the mixer");
  if (scan.heads % scan.groups != 0) config.fail_key(groups, "must divide the number of heads of the mixer");
  scan.head_dim = static_cast<int>(inner / scan.heads);
  const ConfigKey head_dim{.hf = keys.head_dim};
  if (config.optional_integer(head_dim).value_or(scan.head_dim) != scan.head_dim)
    config.fail_key(head_dim, "times the number of heads must be the inner size of the mixer");
  return shape;
}

void read_step_limit(const WeightSource& source, Mamba2Shape& shape) {
  const ConfigKey key{.hf = "time_step_limit"};
  const auto limit = source.config().optional_array<double>(key);
  if (!limit) return;
  if (limit->size() != 2 || !((*limit)[0] >= 0 && (*limit)[1] >= (*limit)[0]))
    source.config().fail_key(key, "must be two ascending numbers");
  constexpr float kMost = std::numeric_limits<float>::max();
  if (!((*limit)[0] <= kMost)) source.config().fail_key(key, "must begin with a finite number");
  shape.least_step = static_cast<float>((*limit)[0]);
  if ((*limit)[1] <= kMost) shape.most_step = static_cast<float>((*limit)[1]);
}

Mamba2Mixer load_mamba2(Weights::Layer& at, const std::string& hf, const Mamba2Shape& shape, int64_t hidden,
                        float norm_epsilon, StateLayout& state) {
  const bool gguf = is_gguf(at.weights().source());
  const SsmShape& scan = shape.scan;
  const int64_t inner = scan.inner(), conv = shape.conv_cols();
  Mamba2Mixer m{.shape = shape, .norm_epsilon = norm_epsilon};
  m.in = at.linear({{{"ssm_in.weight", hf + "in_proj.weight"}, shape.projected_cols()}}, hidden);
  const TensorName taps{"ssm_conv1d.weight", hf + "conv1d.weight"}, a{"ssm_a", hf + "A_log"}, d{"ssm_d", hf + "D"};
  const TensorName norm{"ssm_norm.weight", hf + "norm.weight"};
  m.taps = gguf ? at.flat_vector(taps, {conv, shape.taps}) : at.flat_vector(taps, {conv, 1, shape.taps});
  m.conv_bias = at.optional_vector({"ssm_conv1d.bias", hf + "conv1d.bias"}, conv);
  m.dt_bias = at.vector({"ssm_dt.bias", hf + "dt_bias"}, scan.heads);
  // GGUF stores -exp(A_log).
  m.a = gguf ? at.flat_vector(a, {scan.heads, 1})
             : at.flat_vector(
                   a, {scan.heads}, +[](float x) { return -std::exp(x); });
  m.d = gguf ? at.flat_vector(d, {scan.heads, 1}) : at.vector(d, scan.heads);
  if (!shape.may_lack_norm || at.has(norm))
    m.norm = gguf ? at.flat_vector(norm, {scan.groups, inner / scan.groups}) : at.vector(norm, inner);
  m.out = at.linear({{{"ssm_out.weight", hf + "out_proj.weight"}, hidden}}, inner);
  m.conv_state = state.slot({DType::F32, (shape.taps - 1) * conv});
  m.scan_state = state.slot({DType::F32, scan.state_elements()});
  return m;
}

namespace {

// The columns of the projection.
struct Projected {
  Matrix z, conv, dt;
};

Projected project(Pass& p, const Mamba2Mixer& m, const Normed& x) {
  const SsmShape& scan = m.shape.scan;
  const Matrix all = p.buffer("mamba projected", m.shape.projected_cols());
  p.linear(x, m.in, all);
  const int64_t widths[] = {scan.inner(), scan.inner(), scan.group_cols(), scan.group_cols(), scan.heads};
  int64_t at = 0;
  for (int i = 0; i < 5; ++i) {
    if (m.factors[i] != 1) p.ops.scale(all.columns(at, widths[i]), m.factors[i]);
    at += widths[i];
  }
  return {all.columns(0, scan.inner()), all.columns(scan.inner(), m.shape.conv_cols()),
          all.columns(scan.inner() + m.shape.conv_cols(), scan.heads)};
}

void scan(Pass& p, const Mamba2Mixer& m, Matrix convolved, Matrix dt, Matrix out) {
  const SsmShape& s = m.shape.scan;
  const SlotView slot = p.slot(m.scan_state);
  p.ops.call<SsmScanOp>({s, p.ops.bucket(p.rows()), convolved.dtype, p.ops.batch_invariant(),
                         static_cast<int64_t>(p.batch.sequences.size())},
                        {.shape = s,
                         .x = convolved.columns(0, s.inner()),
                         .b = convolved.columns(s.inner(), s.group_cols()),
                         .c = convolved.columns(s.inner() + s.group_cols(), s.group_cols()),
                         .dt = dt,
                         .out = out,
                         .dt_bias = m.dt_bias->data,
                         .a = m.a->data,
                         .d = m.d->data,
                         .least_step = m.shape.least_step,
                         .most_step = m.shape.most_step,
                         .state = slot.data,
                         .stride = slot.stride,
                         .sequences = p.batch.sequences,
                         .tables = p.batch.tables});
}

}  // namespace

Matrix mamba2_block(Pass& p, const Mamba2Mixer& m, const Normed& x) {
  const SsmShape& s = m.shape.scan;
  const Projected projected = project(p, m, x);
  const Matrix convolved = p.buffer("mamba convolved", m.shape.conv_cols());
  const SlotView slot = p.slot(m.conv_state);
  p.ops.call<CausalConvOp>({p.ops.bucket(p.rows()), m.shape.conv_cols(), m.shape.taps},
                           {.x = projected.conv,
                            .out = convolved,
                            .weight = m.taps->data,
                            .taps = m.shape.taps,
                            .state = slot.data,
                            .stride = slot.stride,
                            .sequences = p.batch.sequences,
                            .tables = p.batch.tables,
                            .bias = m.conv_bias != nullptr ? m.conv_bias->data : nullptr,
                            .silu = true});
  const Matrix scanned = p.buffer("mamba scanned", DType::F32, p.rows(), s.inner());
  scan(p, m, convolved, projected.dt, scanned);
  const Matrix gated = p.buffer("mamba gated", s.inner());
  if (m.norm == nullptr) {
    p.ops.activate(Activation::Silu, projected.z, &scanned, gated);
    return gated;
  }
  NormOp::Args norm{NormKind::Rms, scanned, gated, m.norm->data, nullptr, m.norm_epsilon, s.groups};
  norm.weights_per_group = true;
  if (m.gate == MixerGate::BeforeNorm) {
    p.ops.activate(Activation::Silu, projected.z, &scanned, scanned);
    p.ops.norm(norm);
  } else {
    norm.out = scanned;
    p.ops.norm(norm);
    p.ops.activate(Activation::Silu, projected.z, &scanned, gated);
  }
  return gated;
}

}  // namespace millrace
