#include "models/experts.h"

namespace millrace {
namespace {

// The arrays of a routing, in device memory.
Routing routing_of(Pass& p, const Experts& experts) {
  const int64_t rows = p.rows(), pairs = rows * experts.gate_up->per_row, groups = experts.gate_up->all_groups;
  const auto array = [&](std::string_view name, int64_t count) {
    return p.buffer(name, DType::F32, 1, count).data;  // elements of four bytes
  };
  // In one array, so that one copy brings both to the CPU.
  constexpr int64_t kAligned = 32;
  const int64_t weights_at = (pairs + kAligned - 1) / kAligned * kAligned;
  std::byte* choices = array("chosen experts and their weights", weights_at + pairs);
  return {.rows = rows,
          .per_row = experts.gate_up->per_row,
          .groups = groups,
          .chosen = reinterpret_cast<int32_t*>(choices),
          .weights = reinterpret_cast<float*>(choices) + weights_at,
          .order = reinterpret_cast<int32_t*>(array("expert order", pairs)),
          .offsets = reinterpret_cast<int32_t*>(array("expert offsets", groups + 1))};
}

Matrix in_working_type(Pass& p, const Normed& x) {
  if (x.weight == nullptr && x.x.dtype == p.ops.working()) return x.x;
  const Matrix normed = p.buffer("normed", x.x.cols);
  if (x.weight != nullptr) {
    p.rms_norm(x.x, x.weight, normed);
  } else {
    p.ops.copy(x.x, normed);
  }
  return normed;
}

void add_shared(Pass& p, const Experts& experts, Matrix x, Activation activation, Matrix hidden) {
  const Linear* in = experts.shared.gate_up;
  const bool gated = experts.gate_up->gated;
  const Matrix feed = gated ? p.gated_linear({x, nullptr}, in, activation) : p.buffer("feed", in->n);
  if (!gated) {
    p.linear(x, in, feed);
    p.ops.activate(activation, feed, nullptr, feed);
  }
  if (experts.shared_gate != nullptr) {  // down is linear, so its input may be scaled instead of its output
    const Matrix gate = p.buffer("shared gate", DType::F32, p.rows(), 1);
    p.linear(x, experts.shared_gate, gate);
    p.ops.scale_rows_by_sigmoid(feed, gate);
  }
  p.add_linear(feed, experts.shared.down, hidden);
}

// The routed experts' sum in latent space, and back.
void add_latent(Pass& p, const Experts& experts, Matrix x, const Routing& routing, Activation activation, Matrix feed,
                Matrix hidden) {
  const Matrix latent = p.buffer("expert latent", experts.latent_in->n);
  p.linear({x, nullptr}, experts.latent_in, latent);
  const Matrix sum = p.buffer("sum of experts", hidden.dtype, p.rows(), latent.cols);
  p.ops.copy(latent, sum);
  p.ops.scale(sum, 0);  // experts add to it
  p.ops.experts(latent, *experts.gate_up, *experts.down, routing, activation, feed, {}, sum);
  const Matrix out = p.buffer("sum of experts in the working type", latent.cols);
  p.ops.copy(sum, out);
  p.add_linear(out, experts.latent_out, hidden);
}

}  // namespace

void add_experts(Pass& p, const Experts& experts, const Normed& input, Activation activation, Matrix hidden) {
  const int64_t rows = p.rows(), routed = experts.gate_up->all_groups - experts.settings.shared;
  if (rows == 0) return;
  // Rows of 16 bytes, which matrix products store faster.
  const int64_t columns = (experts.router->n + 3) / 4 * 4;
  const Matrix logits = p.buffer("router logits", DType::F32, rows, columns).columns(0, experts.router->n);
  if (experts.router_norm != nullptr) p.linear(p.rms_norm(input.x, experts.router_norm), experts.router, logits);
  const bool normed_together = experts.router_norm == nullptr && input.weight != nullptr;
  const Matrix x = normed_together ? p.buffer("normed", input.x.cols) : in_working_type(p, input);
  if (normed_together) {
    p.norm_and_linear(input, x, experts.router, logits);
  } else if (experts.router_norm == nullptr) {
    p.linear(x, experts.router, logits);
  }
  if (experts.logit_scale != 1) p.ops.scale(logits.columns(0, routed), experts.logit_scale);
  const Routing routing = routing_of(p, experts);
  // Planned for the rows, also in batch-invariant mode: the workspace grows with them, and kernels count in integers.
  p.ops.call<RouterOp>({experts.settings, routed, bucket_rows(rows)},
                       {.settings = experts.settings,
                        .logits = logits,
                        .choice_bias = experts.choice_bias != nullptr ? experts.choice_bias->data : nullptr,
                        .expert_scale = experts.expert_scale != nullptr ? experts.expert_scale->data : nullptr,
                        .routing = routing});
  const Matrix feed = p.buffer("expert feed", p.ops.working(), routing.pairs(), experts.down->weights.k);
  if (experts.latent_in != nullptr) {  // these have no gate
    add_latent(p, experts, x, routing, activation, feed, hidden);
  } else {
    const Grouped& in = *experts.gate_up;
    const bool ungated = in.gated && p.ops.adapts(in);
    const Matrix both =
        ungated ? p.buffer("expert gate and up", p.ops.working(), routing.pairs(), in.weights.n) : Matrix();
    p.ops.experts(x, in, *experts.down, routing, activation, feed, both, hidden);
  }
  if (experts.shared.gate_up != nullptr) add_shared(p, experts, x, activation, hidden);
}

}  // namespace millrace
