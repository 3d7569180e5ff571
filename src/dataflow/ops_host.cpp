// Layers whose weights lie in host memory. The device hands their rows over to the CPU (host_side.h), or copies the
// weights of experts into its own memory where so many rows use them that this takes less time.
#include <algorithm>
#include <cmath>

#include "dataflow/buckets.h"
#include "dataflow/ops.h"

namespace millrace {

// Waits for the rows, but not for `meanwhile`, which enqueues work that the device does beside the CPU.
void Ops::hand_over(FunctionRef<void()> meanwhile) {
  if (!is_dry()) host_->queue().mark();
  meanwhile();
  if (!is_dry()) host_->queue().wait();
}

void Ops::note_hand_over(Matrix in, Matrix out) {
  if (!counts_times()) return;
  const double bytes = double(sizeof(float)) * double(in.rows * in.cols + out.rows * out.cols);
  const double wait_us = mode_ == Mode::Expect ? host_->link().hand_over_us : 0;
  times_->add("hand-over", wait_us + bytes / host_->link().gbs * 1e-3);
}

void Ops::linear_on_host(Matrix x, const Linear& linear, Matrix y, bool accumulate) {
  launch_pending();
  const Matrix in = host_->input(x.rows, linear.k);
  const Matrix out = host_->output(x.rows, linear.gated ? linear.n / 2 : linear.n);
  copy(x, in);
  hand_over([] {});
  host_->ops().linear(in, linear, out);
  note_hand_over(in, out);
  if (accumulate) return add(y, out, y);
  copy(out, y);
}

void Ops::experts(Matrix x, const Grouped& gate_up, const Grouped& down, const Routing& routing, Activation activation,
                  Matrix feed, Matrix y) {
  const ExpertsCall here{x, gate_up, down, routing, activation, feed, y};
  if (!gate_up.on_host && gate_up.rest == nullptr) return experts_here(here);
  launch_pending();
  if (routing.rows == 0) return;
  const bool split = !gate_up.on_host;
  const ExpertsCall there{x, split ? *gate_up.rest : gate_up, split ? *down.rest : down, routing, activation, feed, y};
  if (streams(there.gate_up, there.down, routing.rows)) {
    if (split) experts_here(here);
    return stream_experts(there);
  }
  experts_on_host(there, [&] {
    if (split) experts_here(here);
  });
}

void Ops::experts_here(const ExpertsCall& c) {
  grouped_linear(c.x, c.gate_up, c.routing, c.feed);
  if (!c.gate_up.gated) activate_pairs(c.activation, c.routing, c.feed);
  grouped_linear(c.feed, c.down, c.routing, c.y);
}

// The pairs of a row as one row: ops are planned for buckets of rows, not of pairs.
void Ops::activate_pairs(Activation activation, const Routing& routing, Matrix feed) {
  const int64_t cols = routing.per_row * feed.stride;
  const Matrix by_row{feed.dtype, routing.rows, cols, cols, feed.data};
  activate(activation, by_row, nullptr, by_row);
}

// The device's own experts are added to y first, then the sum of the CPU's.
void Ops::experts_on_host(const ExpertsCall& c, FunctionRef<void()> meanwhile) {
  Ops& host = host_->ops();
  const Matrix in = host_->input(c.x.rows, c.gate_up.weights.k), out = host_->output(c.x.rows, c.down.weights.n);
  const Matrix feed = host_->feed(c.routing.pairs(), c.down.weights.k);
  const Routing here = host_->routing(c.routing);
  copy(c.x, in);
  if (!is_dry()) {
    const size_t bytes = static_cast<size_t>(c.routing.pairs()) * sizeof(int32_t);
    device_.enqueue_read(reinterpret_cast<std::byte*>(here.chosen), reinterpret_cast<std::byte*>(c.routing.chosen),
                         bytes);
    device_.enqueue_read(reinterpret_cast<std::byte*>(here.weights), reinterpret_cast<std::byte*>(c.routing.weights),
                         bytes);
  }
  OpTimes beside, *all = times_;
  if (counts_times()) times_ = &beside;
  hand_over(meanwhile);
  OpTimes on_host;
  if (counts_times()) host.times_ = times_ = &on_host;
  if (!is_dry()) {
    sort_by_group(here);
    float* sums = out.row<float>(0);
    pool().parallel_for(out.rows * out.cols, 1 << 16,
                        [&](int64_t begin, int64_t end) { std::fill(sums + begin, sums + end, 0.0f); });
  }
  host.grouped_linear(in, c.gate_up, here, feed);
  if (!c.gate_up.gated) host.activate_pairs(c.activation, here, feed);
  host.grouped_linear(feed, c.down, here, out);
  note_hand_over(in, out);
  if (counts_times()) {  // the two sides compute at the same time
    host.times_ = times_ = all;
    times_->add(on_host.total_us() > beside.total_us() ? on_host : beside, 1);
  }
  add(c.y, out, c.y);
}

// Two stages: one is filled while the device computes with the other. The host enqueues ahead of the device, so copies
// for the next layer begin as soon as a stage is free.
void Ops::stream_experts(const ExpertsCall& c) {
  const Grouped &gate_up = *c.gate_up.streamed, &down = *c.down.streamed;
  const auto groups = std::ssize(gate_up.each), slice = gate_up.weights.groups;
  const size_t gate_up_bytes = Arena::padded(static_cast<size_t>(slice) * gate_up.weights.stride);
  const size_t down_bytes = static_cast<size_t>(slice) * down.weights.stride;
  OpTimes compute, *all = times_;
  if (counts_times()) times_ = &compute;
  for (int64_t first = 0; first < groups; first += slice) {
    const int64_t count = std::min(slice, groups - first);
    const Routing part = c.routing.part(gate_up.first + first, count);
    const HostSide::Stage stage = host_->next_stage(gate_up_bytes + down_bytes);
    std::byte* second = stage.at != nullptr ? stage.at + gate_up_bytes : nullptr;
    const GroupedWeights up = host_->fill(stage, stage.at, gate_up, first, count);
    const GroupedWeights out = host_->fill(stage, second, down, first, count);
    if (!is_dry()) host_->queue().use(stage.index);
    run_groups(c.x, gate_up, up, part, c.feed);
    if (!gate_up.gated) activate_pairs(c.activation, part, c.feed);
    run_groups(c.feed, down, out, part, c.y);
    if (!is_dry()) host_->queue().release(stage.index);
  }
  if (!counts_times()) return;
  times_ = all;
  times_->add(compute, 1);
  times_->add("weights over the link", std::max(0.0, stream_us(gate_up, down) - compute.total_us()));
}

double Ops::stream_us(const Grouped& gate_up, const Grouped& down) const {
  const double each = double(gate_up.weights.stride + down.weights.stride);
  return double(gate_up.each.size()) * each / host_->link().gbs * 1e-3;
}

double Ops::expected_us(const Grouped& g, int64_t rows) {
  const GroupedLinearProblem problem = problem_of(g, rows);
  const Kernel<GroupedLinearOp>* kernel = planner<GroupedLinearOp>().plan(problem);
  return kernel != nullptr ? planner<GroupedLinearOp>().expected_us(*kernel, problem) : 1e30;
}

// Whether copying the experts takes less time than computing these rows on the CPU. A batch-invariant pass never
// copies: the two sides round differently.
bool Ops::streams(const Grouped& gate_up, const Grouped& down, int64_t rows) {
  if (gate_up.streamed == nullptr || options_.batch_invariant) return false;
  const int64_t bucket = bucket_rows(rows);
  for (const auto& [planned_rows, streamed] : gate_up.stream_plan) {
    if (planned_rows == bucket) return streamed;
  }
  MR_ASSERT(is_dry());
  Ops& host = host_->ops();
  for (const Grouped* g : {&gate_up, &down}) {  // the host has them even if it never computes them
    if (std::find(host.groupeds_.begin(), host.groupeds_.end(), g) == host.groupeds_.end()) host.groupeds_.push_back(g);
  }
  const Grouped &up_copy = *gate_up.streamed, &down_copy = *down.streamed;
  const double slices = std::ceil(double(up_copy.each.size()) / double(up_copy.weights.groups));
  const double compute_us = slices * (expected_us(up_copy, bucket) + expected_us(down_copy, bucket));
  const double row_us = 4.0 * double(gate_up.weights.k + down.weights.n) / host_->link().gbs * 1e-3;
  const double cpu_us = host.expected_us(gate_up, bucket) + host.expected_us(down, bucket) +
                        host_->link().hand_over_us + double(rows) * row_us;
  const bool pays = std::max(compute_us, stream_us(up_copy, down_copy)) < cpu_us;
  const bool streamed = forced_stream_rows_ ? bucket >= *forced_stream_rows_ : pays;
  if (streamed) stream_rows_ = stream_rows_ == 0 ? bucket : std::min(stream_rows_, bucket);
  gate_up.stream_plan.emplace_back(bucket, streamed);
  return streamed;
}

}  // namespace millrace
