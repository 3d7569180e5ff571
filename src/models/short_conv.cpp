#include "models/short_conv.h"

namespace millrace {

ShortConv load_short_conv(Weights::Layer& at, int taps, int64_t hidden, StateLayout& state) {
  const TensorName weight{"shortconv.conv.weight", "conv.conv.weight"};
  ShortConv conv{.taps = taps};
  conv.in = at.linear({{{"shortconv.in_proj.weight", "conv.in_proj.weight"}, 3 * hidden}}, hidden);
  conv.weight = is_gguf(at.weights().source()) ? at.flat_vector(weight, {hidden, taps})
                                               : at.flat_vector(weight, {hidden, 1, taps});
  conv.bias = at.optional_vector({"shortconv.conv.bias", "conv.conv.bias"}, hidden);
  conv.out = at.linear({{{"shortconv.out_proj.weight", "conv.out_proj.weight"}, hidden}}, hidden);
  conv.state = state.slot({DType::F32, (taps - 1) * hidden});
  return conv;
}

Matrix short_conv_block(Pass& p, const ShortConv& conv, const Normed& x) {
  const int64_t hidden = x.x.cols;
  const Matrix projected = p.buffer("conv projected", 3 * hidden), convolved = p.buffer("conv convolved", hidden);
  const Matrix b = projected.columns(0, hidden), c = projected.columns(hidden, hidden);
  p.linear(x, conv.in, projected);
  p.ops.multiply(b, projected.columns(2 * hidden, hidden), b);
  const SlotView slot = p.slot(conv.state);
  p.ops.call<CausalConvOp>({p.ops.bucket(p.rows()), hidden, conv.taps},
                           {.x = b,
                            .out = convolved,
                            .weight = conv.weight->data,
                            .taps = conv.taps,
                            .state = slot.data,
                            .stride = slot.stride,
                            .sequences = p.batch.sequences,
                            .tables = p.batch.tables,
                            .bias = conv.bias != nullptr ? conv.bias->data : nullptr});
  p.ops.multiply(c, convolved, convolved);
  return convolved;
}

}  // namespace millrace
