// The experts' matrices of mixtures: packed expert by expert, or read in place.
#include <algorithm>

#include "base/error.h"
#include "base/thread_pool.h"
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
                                     .invariant = ops.batch_invariant(),
                                     .all_groups = g.all_groups > g.weights.groups ? g.all_groups : 0};
  const LinearLayout* layout = in_file ? choose_layout_in_place(problem, ops.kernels(), ops.planner<GroupedLinearOp>())
                                       : choose_layout(problem, ops.kernels(), ops.planner<GroupedLinearOp>());
  if (layout == nullptr) {
    fail(ErrorKind::Unsupported, "{}: this device has no kernel for experts in {}", source_.origin(),
         millrace::name(problem.format));
  }
  return layout;
}

// Sets the format and the shape. Sources of several formats are expanded.
void Weights::set_format(Grouped& g, const GroupSources& sources, bool transposed) const {
  const DType stored = sources[0][0].dtype;
  const bool expands = !have_one_format(sources) || (transposed && !can_transpose(stored));
  g.weights.format = expands ? plain_format(ops_of(g.on_host)) : stored;
  g.weights.groups = std::ssize(sources);
  g.weights.k = transposed ? sources[0][0].rows : sources[0][0].cols;
  for (const WeightView& view : sources[0]) g.weights.n += transposed ? view.cols : view.rows;
}

namespace {

// Kernels read each matrix at a multiple of this many bytes from the first.
size_t stride_of(const GroupedWeights& w) {
  const bool in_place = w.layout->in_place(w.format, w.n, w.k);
  return Arena::padded(in_place ? static_cast<size_t>(w.n) * row_bytes(w.format, w.k)
                                : w.layout->bytes(w.format, w.n, w.k));
}

}  // namespace

const Grouped* Weights::grouped(Grouped settings, GroupSources sources, bool transposed) {
  // gate_up is declared first; down belongs to the same unit. Matrices of heads stay on the device: all rows read them.
  const size_t unit = settings.of_heads ? kNoUnit : settings.sum ? units_ - 1 : next_unit();
  const auto all = std::ssize(sources);
  const int64_t moved = is_on_host(unit) ? std::min(host_.units.at(unit), all) : 0;
  settings.all_groups = all;
  if (moved == 0) return declare_groups(unit, std::move(settings), std::move(sources), transposed);
  Grouped there = settings;
  there.on_host = true;
  there.first = all - moved;
  if (moved < all || host_.stream) there.bias = copy_on_host(there.bias);
  put_on_host(there.bias);
  const GroupSources moved_sources(sources.end() - moved, sources.end());
  Grouped* rest = declare_groups(unit, std::move(there), moved_sources, transposed);
  if (host_.stream) declare_streamed(unit, *rest, settings.bias, moved_sources, transposed);
  if (moved == all) return rest;
  sources.resize(static_cast<size_t>(all - moved));
  Grouped* here = declare_groups(unit, std::move(settings), std::move(sources), transposed);
  here->rest = rest;
  return here;
}

const Grouped* Weights::experts(Grouped settings, GroupSources sources, std::vector<LinearPart> parts,
                                LinearPart whole) {
  auto& made = const_cast<Grouped&>(*grouped(std::move(settings), std::move(sources)));
  if (!made.on_host && made.rest == nullptr) {  // the host's part of a step knows no adapters
    made.site = static_cast<int>(sites_.size());
    made.site_parts = static_cast<int>(parts.size());
    if (made.gated && expects_adapters_) add_ungated(made);
  }
  sites_.push_back({nullptr, std::move(parts), made.weights.k, &made, std::move(whole)});
  return &made;
}

// The same matrices without the gate (Grouped::apart).
void Weights::add_ungated(Grouped& grouped) {
  Grouped& apart = groupeds_.emplace_back(grouped);
  apart.gated = false;
  apart.site = -1;
  apart.each.clear();
  apart.weights.data = grouped.weights.data;
  grouped.apart = &apart;
}

Grouped* Weights::declare_groups(size_t unit, Grouped settings, GroupSources sources, bool transposed) {
  Grouped& g = groupeds_.emplace_back(std::move(settings));
  for (const WeightView& view : sources[0]) read_by_.emplace(&g, view);
  set_format(g, sources, transposed);
  const bool as_stored = !transposed && have_one_format(sources), in_file = as_stored && can_stay_in_file(g, sources);
  g.weights.layout = choose_grouped_layout(g, in_file);
  g.each.resize(sources.size());
  g.weights.data = g.each;
  const bool in_place = g.weights.layout->in_place(g.weights.format, g.weights.n, g.weights.k);
  const bool readable =
      std::all_of(sources.begin(), sources.end(), [&](const auto& group) { return is_readable(g, group); });
  if (in_place && as_stored && readable) {
    read_in_place(unit, g, sources, in_file);
    return &g;
  }
  g.weights.stride = stride_of(g.weights);
  pending_groups_.push_back({unit, &g, std::move(sources), transposed});
  return &g;
}

// Slices of up to kSliceBytes, so that two of them take little of the device's memory, and at least eight of them, so
// that the first copy is short.
void Weights::declare_streamed(size_t unit, Grouped& of, const Vector* bias, GroupSources sources, bool transposed) {
  constexpr size_t kSliceBytes = size_t{96} << 20;
  Grouped settings = of;
  settings.on_host = false;
  settings.weights = {};
  settings.bias = bias;
  Grouped& g = groupeds_.emplace_back(std::move(settings));
  set_format(g, sources, transposed);
  g.weights.layout = choose_grouped_layout(g, false);
  g.weights.stride = stride_of(g.weights);
  g.each.assign(sources.size(), nullptr);
  if (!g.sum) {  // down, which is half as large, has the same slices
    const auto affordable = static_cast<int64_t>(kSliceBytes / (g.weights.stride + g.weights.stride / 2));
    slice_ = std::clamp<int64_t>(affordable, 1, (g.weights.groups + 7) / 8);
  }
  g.weights.groups = slice_;
  pending_groups_.push_back({unit, &g, std::move(sources), transposed, true});
  of.streamed = &g;
}

// Kernels of the CPU take gates and ups that lie apart as pointers of all gates, then of all ups.
void Weights::read_in_place(size_t unit, Grouped& g, const GroupSources& sources, bool in_file) {
  for (size_t i = 0; i < sources.size(); ++i) {
    g.each[i] = sources[i][0].data;
    for (const WeightView& view : sources[i])
      in_place_.push_back({unit, g.on_host, view, g.share_of_a_row(), in_file, g.all_groups});
  }
  if (!std::all_of(sources.begin(), sources.end(), is_contiguous)) {
    for (const auto& group : sources) {
      const WeightView& first = group[0];  // some experts may have gate and up in one matrix
      g.each.push_back(group.size() == 2 ? group[1].data : first.row(first.rows / 2));
    }
  }
  g.weights.data = g.each;
}

void Weights::pack_groups(const std::function<void(int64_t, int64_t)>& progress) {
  const auto uploader = on_device() ? ops_.device().new_uploader() : nullptr;
  size_t largest = 0;  // streamed matrix
  for (const auto& pending : pending_groups_)
    largest = std::max(largest, pending.streamed ? pending.grouped->weights.stride : 0);
  Arena packs("packing experts in host memory", uploader != nullptr ? largest : 0, ops_.device().memory());
  std::byte* scratch = packs.take(packs.capacity());
  for (const auto& pending : pending_groups_) {
    Grouped& g = *pending.grouped;
    const LinearLayout& layout = *g.weights.layout;
    Arena& place = pending.streamed ? *streamed_arena_ : arena(g.on_host);
    std::byte* to = place.take(pending.bytes());
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
      if (uploader != nullptr && pending.streamed) {  // the device packs
        layout.upload(views, scratch, *uploader, ops_.pool());
        ops_.device().finish();
        ops_.device().memory().read(to, scratch, g.weights.stride);
      } else if (uploader != nullptr && !g.on_host) {
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
