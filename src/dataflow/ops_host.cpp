// Layers whose weights lie in host memory. The device hands their rows over to the CPU (host_side.h), or copies the
// weights into its own memory where so many rows use them that this takes less time.
#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "dataflow/buckets.h"
#include "dataflow/ops.h"

namespace millrace {

// The CPU does `work` when it has the rows that are enqueued so far. The device meanwhile does what `meanwhile`
// enqueues; without it, nothing.
template <class Work>
void Ops::hand_over(const FunctionRef<void()>* meanwhile, const Work& work) {
  CopyQueue& queue = host_->queue();
  if (host_->records()) {
    if (meanwhile == nullptr) {
      return host_->cut([&queue, work] {
        queue.mark();
        queue.wait();
        work();
      });
    }
    host_->cut([&queue] { queue.mark(); });
    (*meanwhile)();
    return host_->cut([&queue, work] {
      queue.wait();
      work();
    });
  }
  queue.mark();
  if (meanwhile != nullptr) (*meanwhile)();
  queue.wait();
  work();
}

void Ops::note_hand_over(Matrix in, Matrix out) {
  if (!counts_times()) return;
  const double bytes = double(sizeof(float)) * double(in.rows * in.cols + out.rows * out.cols);
  const double wait_us = mode_ == Mode::Expect ? host_->link().hand_over_us : 0;
  times_->add("hand-over", wait_us + bytes / host_->link().gbs * 1e-3);
}

void Ops::linear_on_host(Matrix x, const Linear& linear, Matrix y, bool accumulate) {
  launch_pending();
  if (streams(linear, x.rows)) return stream_linear(x, linear, y, accumulate);
  const Matrix in = host_->input(x.rows, linear.k);
  const Matrix out = host_->output(x.rows, linear.gated ? linear.n / 2 : linear.n);
  copy(x, in);
  const auto work = [&host = host_->ops(), in, &linear, out] { host.linear(in, linear, out); };
  is_dry() ? work() : hand_over(nullptr, work);
  note_hand_over(in, out);
  if (accumulate) return add(y, out, y);
  copy(out, y);
}

void Ops::experts(Matrix x, const Grouped& gate_up, const Grouped& down, const Routing& routing, Activation activation,
                  Matrix feed, Matrix ungated, Matrix y) {
  const ExpertsCall here{x, gate_up, down, routing, activation, feed, ungated, y};
  if (!gate_up.on_host && gate_up.rest == nullptr) return experts_here(here);
  launch_pending();
  if (routing.rows == 0) return;
  const bool split = !gate_up.on_host;
  const ExpertsCall there{x, split ? *gate_up.rest : gate_up, split ? *down.rest : down, routing, activation, feed, {},
                          y};
  if (streams(there.gate_up, there.down, routing.rows)) {
    if (split) experts_here(here);
    return stream_experts(there);
  }
  const auto compute_here = [&] { experts_here(here); };
  const FunctionRef<void()> meanwhile(compute_here);
  experts_on_host(there, split ? &meanwhile : nullptr);
}

void Ops::experts_here(const ExpertsCall& c) {
  if (adapts(c.gate_up)) {
    feed_adapted(c);
  } else {
    grouped_linear(c.x, c.gate_up, c.routing, c.feed);
    if (!c.gate_up.gated) activate_pairs(c.activation, c.routing, c.feed);
  }
  if (adapts(c.down)) add_adapters(c.feed, c.down, c.routing, c.y);
  Routing settled = c.routing;
  settled.settled = true;  // the kernels behind those of gate_up start when the router is complete
  grouped_linear(c.feed, c.down, settled, c.y);
}

// Adapters change gate and up before the gate.
void Ops::feed_adapted(const ExpertsCall& c) {
  const Grouped& layer = c.gate_up;
  const Matrix products = layer.gated ? c.ungated : c.feed;
  grouped_linear(c.x, layer.gated ? *layer.apart : layer, c.routing, products);
  add_adapters(c.x, layer, c.routing, products);
  if (!layer.gated) return activate_pairs(c.activation, c.routing, c.feed);
  const int64_t width = c.feed.cols;
  const Matrix gate = products.columns(0, width), up = products.columns(width, width);
  // As in activate_pairs, the problem counts rows.
  call<ActivationOp>({layer.activation, true, bucket(c.routing.rows), c.routing.per_row * width},
                     {layer.activation, gate, &up, c.feed, layer.clamp});
}

// The pairs of a row as one row: ops are planned for buckets of rows, not of pairs.
void Ops::activate_pairs(Activation activation, const Routing& routing, Matrix feed) {
  const int64_t cols = routing.per_row * feed.stride;
  const Matrix by_row{feed.dtype, routing.rows, cols, cols, feed.data};
  activate(activation, by_row, nullptr, by_row);
}

// The device's own experts are added to y first, then the sum of the CPU's.
void Ops::experts_on_host(const ExpertsCall& c, const FunctionRef<void()>* meanwhile) {
  const Matrix in = host_->input(c.x.rows, c.gate_up.weights.k), out = host_->output(c.x.rows, c.down.weights.n);
  const Matrix feed = host_->feed(c.routing.pairs(), c.down.weights.k);
  const Routing routing = host_->routing(c.routing);
  const auto work = [&host = host_->ops(), &gate_up = c.gate_up, &down = c.down, kind = c.activation, in, out, feed,
                     routing] { host.sum_of_experts(in, gate_up, down, routing, kind, feed, out); };
  copy(c.x, in);
  if (is_dry()) {
    expect_both(work, meanwhile, in, out);
  } else {
    const size_t bytes = HostSide::weights_offset(routing) + static_cast<size_t>(routing.pairs()) * sizeof(float);
    device_.enqueue_read(reinterpret_cast<std::byte*>(routing.chosen), reinterpret_cast<std::byte*>(c.routing.chosen),
                         bytes);
    hand_over(meanwhile, work);
  }
  add(c.y, out, c.y);
}

// out = the weighted sum of each row's experts that are among these, on the CPU.
void Ops::sum_of_experts(Matrix x, const Grouped& gate_up, const Grouped& down, const Routing& routing,
                         Activation activation, Matrix feed, Matrix out) {
  if (!is_dry()) {
    sort_by_group(routing);
    float* sums = out.row<float>(0);
    pool().parallel_for(out.rows * out.cols, 1 << 16,
                        [&](int64_t begin, int64_t end) { std::fill(sums + begin, sums + end, 0.0f); });
  }
  grouped_linear(x, gate_up, routing, feed);
  if (!gate_up.gated) activate_pairs(activation, routing, feed);
  grouped_linear(feed, down, routing, out);
}

// The two sides compute at the same time.
void Ops::expect_both(FunctionRef<void()> on_host, const FunctionRef<void()>* beside, Matrix in, Matrix out) {
  OpTimes there, here, *all = times_;
  if (counts_times()) times_ = &here;
  if (beside != nullptr) (*beside)();
  if (counts_times()) host_->ops().times_ = times_ = &there;
  on_host();
  note_hand_over(in, out);
  if (!counts_times()) return;
  host_->ops().times_ = times_ = all;
  times_->add(there.total_us() > here.total_us() ? there : here, 1);
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

void Ops::stream_linear(Matrix x, const Linear& linear, Matrix y, bool accumulate) {
  const Linear& streamed = *linear.streamed;
  const HostSide::Stage stage = host_->next_stage(streamed_bytes(streamed));
  std::vector<std::byte*>& at = host_->fill(stage, streamed);
  OpTimes compute, *all = times_;
  if (counts_times()) times_ = &compute;
  if (!is_dry()) host_->queue().use(stage.index);
  run_parts_from(at, streamed, x, y, accumulate);
  if (!is_dry()) host_->queue().release(stage.index);
  if (!counts_times()) return;
  times_ = all;
  times_->add(compute, 1);
  const double stream_us = double(streamed_bytes(streamed)) / host_->link().gbs * 1e-3;
  times_->add("weights over the link", std::max(0.0, stream_us - compute.total_us()));
}

double Ops::stream_us(const Grouped& gate_up, const Grouped& down) const {
  const double each = double(gate_up.weights.stride + down.weights.stride);
  return double(gate_up.each.size()) * each / host_->link().gbs * 1e-3;
}

double Ops::expected_us(const Grouped& g, int64_t rows) {
  const GroupedLinearProblem problem = problem_of(g, rows);
  const Kernel<GroupedLinearOp>* kernel = planner<GroupedLinearOp>().plan(problem);
  return kernel != nullptr ? expected_us<GroupedLinearOp>(*kernel, problem) : 1e30;
}

double Ops::expected_us(const Linear& linear, int64_t rows) {
  double sum = 0;
  for (const auto& part : linear.parts) {
    const LinearProblem problem = problem_of(part.weights, rows, linear.gated);
    sum += expected_us<LinearOp>(*planner<LinearOp>().plan(problem), problem);
  }
  return sum;
}

double Ops::row_over_link_us(int64_t cols) const {
  return double(sizeof(float)) * double(cols) / host_->link().gbs * 1e-3;
}

// Decodes of a few sequences do not copy, even where a matrix is small enough: their steps are recorded, and copies
// beside the device's queue cannot be.
template <class Layer>
bool Ops::keep_stream(const Layer& layer, int64_t bucket, bool pays) {
  constexpr int64_t kFewestRows = 16;
  const bool streamed = forced_stream_rows_ ? bucket >= *forced_stream_rows_ : pays && bucket >= kFewestRows;
  if (streamed) stream_rows_ = stream_rows_ == 0 ? bucket : std::min(stream_rows_, bucket);
  layer.stream_plan.emplace_back(bucket, streamed);
  return streamed;
}

bool Ops::streams(const Linear& linear, int64_t rows) {
  if (linear.streamed == nullptr || options_.batch_invariant) return false;
  const int64_t bucket = bucket_rows(rows);
  for (const auto& [planned_rows, streamed] : linear.stream_plan) {
    if (planned_rows == bucket) return streamed;
  }
  MR_ASSERT(is_dry());
  const double copy_us = double(streamed_bytes(*linear.streamed)) / host_->link().gbs * 1e-3;
  const double cpu_us = host_->ops().expected_us(linear, bucket) + host_->link().hand_over_us +
                        double(rows) * row_over_link_us(linear.k + linear.n);
  return keep_stream(linear, bucket, std::max(copy_us, expected_us(*linear.streamed, bucket)) < cpu_us);
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
  const double cpu_us = host.expected_us(gate_up, bucket) + host.expected_us(down, bucket) +
                        host_->link().hand_over_us +
                        double(rows) * row_over_link_us(gate_up.weights.k + down.weights.n);
  return keep_stream(gate_up, bucket, std::max(compute_us, stream_us(up_copy, down_copy)) < cpu_us);
}

}  // namespace millrace
