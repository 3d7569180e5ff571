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
  declare({.gguf = name.gguf, .shape = shape, .pieces = {all}});
  const int64_t rows = shape.size() > 2 ? *(shape.end() - 2) : 1;
  std::vector<WeightView> views;
  for (int64_t i = 0; i < count; ++i)
    views.push_back({all.dtype, rows, cols, all.data + static_cast<size_t>(i * rows) * row_bytes(all.dtype, cols)});
  return views;
}

namespace {

bool have_one_format(const std::vector<std::vector<WeightView>>& sources) {
  const auto same = [&](const WeightView& view) { return view.dtype == sources[0][0].dtype; };
  return std::all_of(sources.begin(), sources.end(),
                     [&](const auto& group) { return std::all_of(group.begin(), group.end(), same); });
}

// The format of expanded matrices.
DType plain_format(const Ops& ops) {
  if (ops.working() != DType::F32) return ops.working();
  return ops.precision() == Precision::Exact ? DType::F32 : DType::F16;
}

// Whether kernels of the CPU can read the group where it lies: one matrix, or gate and up.
bool is_readable(const Grouped& g, const std::vector<WeightView>& group) {
  return is_contiguous(group) || (g.gated && group.size() == 2);
}

}  // namespace

bool Weights::can_stay_in_file(const Grouped& g, const GroupSources& sources) const {
  if (experts_in_ != ExpertsIn::File || g.of_heads || (on_device() && !g.on_host)) return false;
  for (const auto& group : sources) {
    if (!is_readable(g, group)) return false;
    for (const WeightView& view : group) {
      if (source_.fetched_bytes(view) > 0) return false;
    }
  }
  return true;
}

const LinearLayout* Weights::choose_grouped_layout(const Grouped& g, bool in_file) const {
  Ops& ops = ops_of(g.on_host);
  const GroupedLinearProblem problem{.format = g.weights.format,
                                     .precision = ops.precision(),
                                     .groups = g.weights.groups,
                                     .n = g.weights.n,
                                     .k = g.weights.k,
                                     .per_row = g.per_row,
                                     .x = ops.working(),
                                     .gated = g.gated,
                                     .sum = g.sum,
                                     .invariant = ops.batch_invariant()};
  const LinearLayout* layout = in_file ? choose_layout_in_place(problem, ops.kernels(), ops.planner<GroupedLinearOp>())
                                       : choose_layout(problem, ops.kernels(), ops.planner<GroupedLinearOp>());
  if (layout == nullptr) {
    fail(ErrorKind::Unsupported, "{}: this device has no kernel for experts in {}", source_.origin(),
         millrace::name(problem.format));
  }
  return layout;
}

const Grouped* Weights::grouped(Grouped settings, GroupSources sources, bool transposed) {
  Grouped& g = groupeds_.emplace_back(std::move(settings));
  // gate_up is declared first; down belongs to the same unit. Matrices of heads stay on the device: all rows read them.
  const size_t unit = g.of_heads ? kNoUnit : g.sum ? units_ - 1 : next_unit();
  g.on_host = is_on_host(unit);
  if (g.on_host) put_on_host(g.bias);
  for (const WeightView& view : sources[0]) read_by_.emplace(&g, view);
  const DType stored = sources[0][0].dtype;
  const bool expands = !have_one_format(sources) || (transposed && !can_transpose(stored));
  const DType format = expands ? plain_format(ops_of(g.on_host)) : stored;
  g.weights.format = format;
  g.weights.groups = std::ssize(sources);
  g.weights.k = transposed ? sources[0][0].rows : sources[0][0].cols;
  for (const WeightView& view : sources[0]) g.weights.n += transposed ? view.cols : view.rows;
  const bool as_stored = !expands && !transposed, in_file = as_stored && can_stay_in_file(g, sources);
  g.weights.layout = choose_grouped_layout(g, in_file);
  g.each.resize(sources.size());
  g.weights.data = g.each;
  const bool in_place = g.weights.layout->in_place(format, g.weights.n, g.weights.k);
  const bool readable =
      std::all_of(sources.begin(), sources.end(), [&](const auto& group) { return is_readable(g, group); });
  if (in_place && as_stored && readable) {
    read_in_place(unit, g, sources, in_file);
    return &g;
  }
  const size_t bytes = in_place ? static_cast<size_t>(g.weights.n) * row_bytes(format, g.weights.k)
                                : g.weights.layout->bytes(format, g.weights.n, g.weights.k);
  g.weights.stride = Arena::padded(bytes);
  pending_groups_.push_back({unit, &g, std::move(sources), transposed});
  return &g;
}

// Kernels of the CPU take gates and ups that lie apart as pointers of all gates, then of all ups.
void Weights::read_in_place(size_t unit, Grouped& g, const GroupSources& sources, bool in_file) {
  for (size_t i = 0; i < sources.size(); ++i) {
    g.each[i] = sources[i][0].data;
    for (const WeightView& view : sources[i])
      in_place_.push_back({unit, g.on_host, view, double(g.per_row) / double(g.weights.groups), in_file});
  }
  if (!std::all_of(sources.begin(), sources.end(), is_contiguous)) {
    for (const auto& group : sources) g.each.push_back(group[1].data);
  }
  g.weights.data = g.each;
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
      std::vector<std::vector<std::byte>> plain(pending.sources[i].size());
      std::vector<WeightView> views = pending.sources[i];
      for (size_t j = 0; j < views.size(); ++j) {
        if (views[j].dtype != g.weights.format) views[j] = expanded(views[j], g.weights.format, plain[j], ops_.pool());
      }
      if (pending.transposed) views = {transposed(views, copy, ops_.pool())};
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
