#include "models/delta_net.h"

#include <cmath>

namespace millrace {
namespace {

// Qwen3-Next stores the rows of each key head together: q, k, the values of its value heads, their z.
std::vector<LinearPart> input_parts(const Weights::Layer& at, const DeltaRuleShape& s) {
  const int64_t keys = s.key_width(), values = s.value_width(), heads = s.value_heads;
  const int64_t of_head = values / s.key_heads;
  std::vector<LinearPart> parts;
  if (const TensorName all{"ssm_in.weight", "linear_attn.in_proj_qkvz.weight"}; at.has(all)) {
    const RowGroups by_head{s.key_heads, 4, {s.key_dim, s.key_dim, of_head, of_head}};
    parts.push_back({.name = all, .rows = 2 * (keys + values), .stored_by = by_head});
  } else {
    parts.push_back({{"attn_qkv.weight", "linear_attn.in_proj_qkv.weight"}, 2 * keys + values});
    parts.push_back({{"attn_gate.weight", "linear_attn.in_proj_z.weight"}, values});
  }
  if (const TensorName both{"ssm_ba.weight", "linear_attn.in_proj_ba.weight"}; at.has(both)) {
    parts.push_back({.name = both, .rows = 2 * heads, .stored_by = {s.key_heads, 2}});
  } else {
    parts.push_back({{"ssm_beta.weight", "linear_attn.in_proj_b.weight"}, heads});
    parts.push_back({{"ssm_alpha.weight", "linear_attn.in_proj_a.weight"}, heads});
  }
  return parts;
}

// [channels, taps], or [channels, 1, taps] in Hugging Face folders.
const Vector* load_conv(Weights::Layer& at, int64_t channels, int64_t taps) {
  const TensorName name{"ssm_conv1d.weight", "linear_attn.conv1d.weight"};
  const TensorInfo* found = at.find(name);
  const bool three = found != nullptr && found->shape.size() == 3;
  WeightView all = three ? at.slices(name, {channels, 1, taps})[0] : at.slices(name, {channels, taps})[0];
  all.rows = channels;
  return at.weights().stacked_vector({all});
}

}  // namespace

DeltaNet read_delta_net(const WeightSource& source, const DeltaNet& usual) {
  constexpr int64_t kMostHeads = 1 << 12, kMostDim = 1 << 10, kMostTaps = 16;
  const Config& keys = source.config();
  const auto count = [&](ConfigKey key, int64_t least, int64_t most, int otherwise) {
    if (is_gguf(source)) return static_cast<int>(keys.integer(key, {least, most}));
    return static_cast<int>(keys.optional_integer(key, {least, most}).value_or(otherwise));
  };
  const ConfigKey value_heads{"linear_num_value_heads", "ssm.time_step_rank"};
  DeltaNet net;
  DeltaRuleShape& s = net.shape;
  s.key_heads = count({"linear_num_key_heads", "ssm.group_count"}, 1, kMostHeads, usual.shape.key_heads);
  s.value_heads = count(value_heads, 1, kMostHeads, usual.shape.value_heads);
  if (s.value_heads % s.key_heads != 0) keys.fail_key(value_heads, "must be a multiple of the number of key heads");
  s.key_dim = count({"linear_key_head_dim", "ssm.state_size"}, 1, kMostDim, usual.shape.key_dim);
  if (is_gguf(source)) {
    const ConfigKey width{.gguf = "ssm.inner_size"};
    const int64_t values = keys.integer(width, {1, kMostHeads * kMostDim});
    if (values % s.value_heads != 0) keys.fail_key(width, "must be a multiple of the number of value heads");
    s.value_dim = static_cast<int>(values / s.value_heads);
  } else {
    s.value_dim = count({.hf = "linear_value_head_dim"}, 1, kMostDim, usual.shape.value_dim);
  }
  s.tiled = usual.shape.tiled && is_gguf(source);
  net.taps = count({"linear_conv_kernel_dim", "ssm.conv_kernel"}, 2, kMostTaps, usual.taps);
  return net;
}

DeltaNet load_delta_net(Weights::Layer& at, const DecoderConfig& c, DeltaNet net, StateLayout& state) {
  const DeltaRuleShape& s = net.shape;
  net.in = at.linear(input_parts(at, s), c.hidden);
  net.conv = load_conv(at, net.conv_width(), net.taps);
  net.decay = is_gguf(at.weights().source()) ? at.vector({"ssm_a", ""}, s.value_heads)
                                             : at.mapped_vector({"ssm_a", "linear_attn.A_log"}, s.value_heads,
                                                                [](float x) { return -std::exp(x); });
  net.dt_bias = at.vector({"ssm_dt.bias", "linear_attn.dt_bias"}, s.value_heads);
  net.norm = at.vector({"ssm_norm.weight", "linear_attn.norm.weight"}, s.value_dim);
  net.inputs = state.slot({DType::F32, (net.taps - 1) * net.conv_width()});
  net.memory = state.slot({DType::F32, s.state_elements()});
  return net;
}

TensorName delta_net_output() { return {"ssm_out.weight", "linear_attn.out_proj.weight"}; }

Matrix delta_net_block(Pass& p, const DeltaNet& net, const Normed& x) {
  const DeltaRuleShape& s = net.shape;
  const int64_t keys = s.key_width(), values = s.value_width(), heads = s.value_heads, width = net.conv_width();
  const Matrix in = p.buffer("delta in", net.in->n), qkv = p.buffer("delta qkv", width);
  const Matrix out = p.buffer("delta out", values);
  p.linear(x, net.in, in);
  const SlotView inputs = p.slot(net.inputs), memory = p.slot(net.memory);
  p.ops.delta_rule({.x = in.columns(0, width),
                    .out = qkv,
                    .weight = net.conv->data,
                    .taps = net.taps,
                    .state = inputs.data,
                    .stride = inputs.stride,
                    .sequences = p.batch.sequences,
                    .tables = p.batch.tables,
                    .silu = true},
                   {.shape = s,
                    .q = qkv.columns(0, keys),
                    .k = qkv.columns(keys, keys),
                    .v = qkv.columns(2 * keys, values),
                    .a = in.columns(width + values + heads, heads),
                    .b = in.columns(width + values, heads),
                    .decay = net.decay->data,
                    .dt_bias = net.dt_bias->data,
                    .out = out,
                    .norm = net.norm->data,
                    .epsilon = p.config.norm_epsilon,
                    .gate = in.columns(width, values),
                    .state = memory.data,
                    .stride = memory.stride,
                    .sequences = p.batch.sequences,
                    .tables = p.batch.tables});
  return out;
}

}  // namespace millrace
