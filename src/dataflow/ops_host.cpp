// Layers whose weights lie in host memory: the device hands rows over, the CPU computes them (host_side.h).
#include <algorithm>

#include "dataflow/ops.h"

namespace millrace {
namespace {

// A hand-over without its bytes: launching the copy, waiting for the device, launching the addition.
constexpr double kHandOverUs = 20;

}  // namespace

void Ops::wait_for_device() {
  if (!is_dry()) device_.finish();
}

void Ops::note_hand_over(Matrix in, Matrix out) {
  if (mode_ != Mode::Expect && mode_ != Mode::Roof) return;
  const double bytes = double(sizeof(float)) * double(in.rows * in.cols + out.rows * out.cols);
  times_->add("hand-over", (mode_ == Mode::Expect ? kHandOverUs : 0) + bytes / host_->link_gbs() * 1e-3);
}

void Ops::linear_on_host(Matrix x, const Linear& linear, Matrix y, bool accumulate) {
  launch_pending();
  const Matrix in = host_->input(x.rows, linear.k);
  const Matrix out = host_->output(x.rows, linear.gated ? linear.n / 2 : linear.n);
  copy(x, in);
  wait_for_device();
  host_->ops().linear(in, linear, out);
  note_hand_over(in, out);
  if (accumulate) return add(y, out, y);
  copy(out, y);
}

void Ops::experts(Matrix x, const Grouped& gate_up, const Grouped& down, const Routing& routing, Activation activation,
                  Matrix feed, Matrix y) {
  if (gate_up.on_host) return experts_on_host(x, gate_up, down, routing, activation, y);
  grouped_linear(x, gate_up, routing, feed);
  if (!gate_up.gated) activate_pairs(activation, routing, feed);
  grouped_linear(feed, down, routing, y);
}

// The pairs of a row as one row: ops are planned for buckets of rows, not of pairs.
void Ops::activate_pairs(Activation activation, const Routing& routing, Matrix feed) {
  const int64_t cols = routing.per_row * feed.stride;
  const Matrix by_row{feed.dtype, routing.rows, cols, cols, feed.data};
  activate(activation, by_row, nullptr, by_row);
}

void Ops::experts_on_host(Matrix x, const Grouped& gate_up, const Grouped& down, const Routing& routing,
                          Activation activation, Matrix y) {
  launch_pending();
  if (routing.rows == 0) return;
  Ops& host = host_->ops();
  const Matrix in = host_->input(x.rows, gate_up.weights.k), out = host_->output(x.rows, down.weights.n);
  const Matrix feed = host_->feed(routing.pairs(), down.weights.k);
  const Routing here = host_->routing(routing);
  copy(x, in);
  if (!is_dry()) {
    const size_t bytes = static_cast<size_t>(routing.pairs()) * sizeof(int32_t);
    device_.enqueue_read(reinterpret_cast<std::byte*>(here.chosen), reinterpret_cast<std::byte*>(routing.chosen),
                         bytes);
    device_.enqueue_read(reinterpret_cast<std::byte*>(here.weights), reinterpret_cast<std::byte*>(routing.weights),
                         bytes);
    wait_for_device();
    sort_by_group(here);
    float* sums = out.row<float>(0);
    pool().parallel_for(out.rows * out.cols, 1 << 16,
                        [&](int64_t begin, int64_t end) { std::fill(sums + begin, sums + end, 0.0f); });
  }
  host.grouped_linear(in, gate_up, here, feed);
  if (!gate_up.gated) host.activate_pairs(activation, here, feed);
  host.grouped_linear(feed, down, here, out);
  note_hand_over(in, out);
  add(y, out, y);
}

}  // namespace millrace
