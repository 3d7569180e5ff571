// Low-rank adapters behind linear layers and mixtures.
#include <algorithm>

#include "dataflow/buckets.h"
#include "dataflow/ops.h"

namespace millrace {
namespace {

// Adapters change gate and up before the gate.
const Linear& base_of(const Linear& linear) { return linear.gated ? *linear.apart : linear; }

}  // namespace

LoraOp::Problem Ops::adapter_problem(const Linear& linear, int64_t rows) const {
  return {adapters_->format,
          bucket_rows(rows),
          linear.n,
          linear.k,
          linear.site_parts,
          false,
          linear.gated && !device_.is_host() && !linear.on_host,
          options_.batch_invariant};
}

const Kernel<LoraOp>& Ops::adapter_kernel(const LoraOp::Problem& problem) {
  const Kernel<LoraOp>* kernel = is_dry() ? planner<LoraOp>().plan(problem) : planner<LoraOp>().planned(problem);
  MR_ASSERT(kernel != nullptr);
  return *kernel;
}

void Ops::launch_base(Matrix x, const Linear& linear, Matrix y) { launch(x, base_of(linear), y); }

// Adapters read the norm's result. A norm that two linear layers share is no obstacle: its first half is in memory.
Ops::AdaptedInput Ops::launch_base(const NormOp::Args& norm, const Linear& linear, Matrix y) {
  const Linear& base = base_of(linear);
  if (!(base.on_host && host_ != nullptr) && !shows_inputs()) {
    if (is_dry()) plan(base, norm.x.rows);
    if (mode_ == Mode::Plan) planner<NormOp>().plan(problem_of(norm));  // as in linear()
    const LoraOp::Problem problem = adapter_problem(linear, norm.x.rows);
    if (adapter_kernel(problem).shares_between(problem, hardware_) && shares_norm_with_pending(norm, base)) {
      run_sharing_norm(norm, base, y);
      return {norm.out, squares_, norm.epsilon};
    }
  }
  this->norm(norm);
  launch_base(norm.out, linear, y);
  return {norm.out};
}

const Linear* Ops::adapted_behind(const Linear& linear) const {
  auto at = std::find(adapted_.begin(), adapted_.end(), &linear);
  while (at != adapted_.end() && ++at != adapted_.end()) {
    if (adapts(**at)) return *at;
  }
  return nullptr;
}

void Ops::add_adapters(const AdaptedInput& input, const Linear& linear, Matrix y, Matrix feed) {
  MR_ASSERT(std::ssize(row_adapters_) >= input.x.rows);
  LoraOp::Args args{.format = adapters_->format,
                    .x = input.x,
                    .parts = linear.site_parts,
                    .adapters = row_adapters_.data(),
                    .y = y,
                    .squares = input.squares,
                    .epsilon = input.epsilon,
                    .feed = feed};
  if (is_dry()) {  // no table is allocated
    if (std::find(adapted_.begin(), adapted_.end(), &linear) == adapted_.end()) adapted_.push_back(&linear);
  } else {
    args.table = adapters_->of_site(linear.site);
    args.most_rank = adapters_->ranks[static_cast<size_t>(linear.site)];
    if (const Linear* next = adapted_behind(linear)) {
      args.next = adapters_->of_site(next->site);
      args.next_k = next->k;
    }
  }
  if (feed.cols > 0) args.gate_group = static_cast<int32_t>(linear.parts[0].weights.layout->gate_group());
  call<LoraOp>(adapter_problem(linear, input.x.rows), args);
}

void Ops::add_adapters(Matrix x, const Grouped& g, const Routing& routing, Matrix y) {
  if (routing.rows == 0) return;
  MR_ASSERT(std::ssize(row_adapters_) >= routing.rows);
  call<GroupedLoraOp>(
      {adapters_->format, bucket_rows(routing.rows), routing.per_row, g.weights.n, g.weights.k, g.site_parts, g.sum},
      {.format = adapters_->format,
       .x = x,
       .routing = routing,
       .parts = g.site_parts,
       .adapters = row_adapters_.data(),
       .table = is_dry() ? nullptr : adapters_->of_site(g.site),
       .sum = g.sum,
       .y = y});
}

// The kernel of the adapters may also compute the activation behind them.
void Ops::add_adapters_and_gate(const AdaptedInput& input, const Linear& linear, Matrix y, Matrix feed) {
  const LoraOp::Problem problem = adapter_problem(linear, input.x.rows);
  if (problem.alternating && adapter_kernel(problem).takes_along(problem, hardware_) &&
      !is_forced(ActivationOp::kName)) {
    return add_adapters(input, linear, y, feed);
  }
  add_adapters(input, linear, y);
  activate_gated(linear, y, feed);
}

void Ops::gated_linear(Matrix x, const Linear& linear, Matrix y, Matrix feed) {
  launch_pending();
  if (x.rows == 0) return;
  launch_base(x, linear, y);
  add_adapters_and_gate({x}, linear, y, feed);
}

void Ops::gated_linear(const NormOp::Args& norm, const Linear& linear, Matrix y, Matrix feed) {
  if (norm.x.rows == 0) return launch_pending();
  add_adapters_and_gate(launch_base(norm, linear, y), linear, y, feed);
}

}  // namespace millrace
