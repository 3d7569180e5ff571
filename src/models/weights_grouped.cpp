// The experts' matrices of mixtures: packed expert by expert, or read in place.
#include <algorithm>

#include "base/error.h"
#include "dataflow/layout.h"
#include "models/weights.h"

namespace millrace {
namespace {

// True if the views are one range of rows in memory.
bool is_contiguous(const std::vector<WeightView>& views) {
  for (size_t i = 1; i < views.size(); ++i) {
    if (views[i].data != views[i - 1].data + views[i - 1].bytes()) return false;
  }
  return true;
}

}  // namespace

std::vector<WeightView> Weights::slices(const TensorName& name, std::initializer_list<int64_t> shape) {
  const std::string found = resolve(name);
  const WeightView all = source_.tensor(found, shape);
  const int64_t count = *shape.begin(), cols = *(shape.end() - 1);
  if (cols % info(all.dtype).block != 0) {
    fail(ErrorKind::BadFile, "{}: tensor '{}' has rows of {} values, not whole blocks of {}", source_.origin(), found,
         cols, millrace::name(all.dtype));
  }
  used_.insert(found);
  const int64_t rows = shape.size() > 2 ? *(shape.end() - 2) : 1;
  std::vector<WeightView> views;
  for (int64_t i = 0; i < count; ++i)
    views.push_back({all.dtype, rows, cols, all.data + static_cast<size_t>(i * rows) * row_bytes(all.dtype, cols)});
  return views;
}

const Grouped* Weights::grouped(Grouped settings, std::vector<std::vector<WeightView>> sources, bool transposed) {
  Grouped& g = groupeds_.emplace_back(std::move(settings));
  DType format = sources[0][0].dtype;
  for (const auto& group : sources) {
    for (const WeightView& view : group) {
      if (view.dtype == format) continue;
      fail(ErrorKind::Unsupported, "{}: experts of one layer in {} and {}; requantize the model to one format",
           source_.origin(), millrace::name(format), millrace::name(view.dtype));
    }
  }
  if (transposed && !can_transpose(format)) {
    const DType on_host = ops_.precision() == Precision::Exact ? DType::F32 : DType::F16;
    format = ops_.working() == DType::F32 ? on_host : ops_.working();
  }
  // gate_up is declared first; down belongs to the same unit. Matrices of heads stay on the device: all rows read them.
  const size_t unit = g.of_heads ? kNoUnit : g.sum ? units_ - 1 : next_unit();
  g.on_host = is_on_host(unit);
  if (g.on_host) put_on_host(g.bias);
  Ops& ops = ops_of(g.on_host);
  g.weights.format = format;
  g.weights.groups = std::ssize(sources);
  g.weights.k = transposed ? sources[0][0].rows : sources[0][0].cols;
  for (const WeightView& view : sources[0]) g.weights.n += transposed ? view.cols : view.rows;
  const GroupedLinearProblem problem{.format = format,
                                     .precision = ops.precision(),
                                     .groups = g.weights.groups,
                                     .n = g.weights.n,
                                     .k = g.weights.k,
                                     .per_row = g.per_row,
                                     .x = ops.working(),
                                     .gated = g.gated,
                                     .sum = g.sum,
                                     .invariant = ops.batch_invariant()};
  g.weights.layout = choose_layout(problem, ops.kernels(), ops.planner<GroupedLinearOp>());
  if (g.weights.layout == nullptr) {
    fail(ErrorKind::Unsupported, "{}: this device has no kernel for experts in {}", source_.origin(),
         millrace::name(format));
  }
  g.each.resize(sources.size());
  g.weights.data = g.each;
  const bool in_place = g.weights.layout->in_place(format, g.weights.n, g.weights.k);
  if (in_place && !transposed && std::all_of(sources.begin(), sources.end(), is_contiguous)) {
    for (size_t i = 0; i < sources.size(); ++i) {
      g.each[i] = sources[i][0].data;
      for (const WeightView& view : sources[i])
        in_place_.push_back({unit, g.on_host, view, double(g.per_row) / double(g.weights.groups)});
    }
    return &g;
  }
  // Gate and up that lie apart are copied, because kernels expect them one after the other.
  const size_t bytes = in_place ? static_cast<size_t>(g.weights.n) * row_bytes(format, g.weights.k)
                                : g.weights.layout->bytes(format, g.weights.n, g.weights.k);
  g.weights.stride = Arena::padded(bytes);
  pending_groups_.push_back({unit, &g, std::move(sources), transposed});
  return &g;
}

void Weights::pack_groups(const std::function<void(int64_t, int64_t)>& progress) {
  const auto uploader = on_device() ? ops_.device().new_uploader() : nullptr;
  for (const auto& pending : pending_groups_) {
    Grouped& g = *pending.grouped;
    const LinearLayout& layout = *g.weights.layout;
    std::byte* to = arena(g.on_host).take(g.weights.stride * static_cast<size_t>(g.weights.groups));
    for (size_t i = 0; i < pending.sources.size(); ++i, to += g.weights.stride) {
      const auto turn = ops_.pool().turn();
      for (const WeightView& view : pending.sources[i]) source_.fetch(view, ops_.pool());
      std::vector<std::byte> copy;
      std::vector<WeightView> views = pending.sources[i];
      if (pending.transposed) views = {transposed(views, g.weights.format, copy, ops_.pool())};
      if (uploader != nullptr && !g.on_host) {
        layout.upload(views, to, *uploader, ops_.pool());
      } else if (!layout.in_place(g.weights.format, g.weights.n, g.weights.k)) {
        layout.pack(views, to, ops_.pool());
      } else {
        for (std::byte* at = to; const WeightView& view : views) at = std::copy_n(view.data, view.bytes(), at);
      }
      g.each[i] = to;
      for (const WeightView& view : pending.sources[i]) source_.release(view);
    }
    report(progress);
  }
  if (uploader != nullptr) ops_.device().finish();
  pending_groups_.clear();
}

}  // namespace millrace
