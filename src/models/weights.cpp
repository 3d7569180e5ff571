#include "models/weights.h"

#include <algorithm>

#include "base/error.h"
#include "dataflow/layout.h"
#include "tensor/dequantize.h"

namespace millrace {

std::string bias_name(std::string weight) {
  const auto at = weight.rfind(".weight");
  return at == std::string::npos ? std::string() : weight.replace(at, std::string::npos, ".bias");
}

namespace {

// The name of a tensor in every layer: "model.layers.7.mlp.up_proj.bias" without the 7.
std::string without_numbers(std::string_view name) {
  std::string kept;
  while (!name.empty()) {
    const auto part = name.substr(0, std::min(name.find('.'), name.size() - 1) + 1);
    if (part.find_first_not_of("0123456789.") != std::string_view::npos) kept += part;
    name.remove_prefix(part.size());
  }
  return kept;
}

}  // namespace

Weights::Weights(const WeightSource& source, Ops& ops, HostUnits host, ExpertsIn experts_in)
    : source_(source), ops_(ops), host_(std::move(host)), experts_in_(experts_in) {
  // Tables of RoPE frequencies; architectures that need them read them with the config.
  for (const char* known :
       {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight", "rotary_emb.inv_freq"}) {
    ignore(known);
  }
}

std::string Weights::resolve(const TensorName& name) const {
  return source_.convention() == WeightSource::Convention::Gguf ? name.gguf : name.hf;
}

bool Weights::has(const TensorName& name) const { return source_.find(resolve(name)) != nullptr; }

void Weights::ignore(const std::string& fragment) { ignored_.push_back(fragment); }

WeightView Weights::find(const std::string& name, int64_t rows, int64_t cols) {
  const int64_t shape[] = {rows, cols};
  const WeightView view = source_.tensor(name, rows > 0 ? std::span(shape, 2) : std::span(shape + 1, 1));
  if (cols % info(view.dtype).block != 0) {
    fail(ErrorKind::BadFile, "{}: tensor '{}' has rows of {} values, not whole blocks of {}", source_.origin(), name,
         cols, millrace::name(view.dtype));
  }
  used_.insert(name);
  return view;
}

const Vector* Weights::declare(PendingVector pending, int64_t n) {
  Vector& vector = vectors_.emplace_back();
  vector.n = n;
  pending.vector = &vector;
  pending_vectors_.push_back(std::move(pending));
  return &vector;
}

void Weights::declare(DeclaredTensor tensor) {
  if (!tensor.gguf.empty() && !tensor.gguf.ends_with('.')) declared_.push_back(std::move(tensor));
}

const Vector* Weights::vector(const TensorName& name, int64_t n, float add) {
  const WeightView view = find(resolve(name), 0, n);
  declare({.gguf = name.gguf, .shape = {n}, .pieces = {view}, .add = add});
  return declare({.pieces = {{view, n}}, .add = add}, n);
}

const Vector* Weights::mapped_vector(const TensorName& name, int64_t n, float (*map)(float)) {
  const WeightView view = find(resolve(name), 0, n);
  declare({.gguf = name.gguf, .shape = {n}, .pieces = {view}, .map = map});
  return declare({.pieces = {{view, n}}, .map = map}, n);
}

const Vector* Weights::flat_vector(const TensorName& name, std::initializer_list<int64_t> shape, float (*map)(float)) {
  const std::string resolved = resolve(name);
  const WeightView view = source_.tensor(resolved, shape);
  used_.insert(resolved);
  declare({.gguf = name.gguf, .shape = shape, .pieces = {view}, .map = map});
  const int64_t n = view.rows * view.cols;
  return declare({.pieces = {{view, n}}, .map = map}, n);
}

const Vector* Weights::head_vectors(const TensorName& name, int heads, int64_t n) {
  const std::string pattern = resolve(name);
  const auto at = pattern.find("{}");
  PendingVector vectors;
  DeclaredTensor declared{.gguf = name.gguf, .shape = {heads, n}};
  if (at == std::string::npos) {
    declared.pieces = {find(pattern, heads, n)};
  } else {
    for (int i = 0; i < heads; ++i)
      declared.pieces.push_back(find(std::string(pattern).replace(at, 2, std::to_string(i)), 0, n));
  }
  for (const WeightView& view : declared.pieces) vectors.pieces.push_back({view, view.rows * n});
  declare(std::move(declared));
  return declare(std::move(vectors), heads * n);
}

const Vector* Weights::optional_vector(const TensorName& name, int64_t n) {
  return has_optional(resolve(name)) ? vector(name, n) : nullptr;
}

void Weights::require(const TensorName& name) const {
  if (!has(name)) fail(ErrorKind::BadFile, "{}: tensor '{}' is missing", source_.origin(), resolve(name));
}

bool Weights::has_optional(const std::string& name) {
  const bool has = source_.find(name) != nullptr;
  Optional& found = optional_[without_numbers(name)];
  (has ? found.there : found.absent) = name;
  return has;
}

const Vector* Weights::stacked_vector(const std::vector<WeightView>& views) {
  PendingVector pending;
  int64_t n = 0;
  for (const WeightView& view : views) {
    pending.pieces.push_back({view, view.rows * view.cols});
    n += view.rows * view.cols;
  }
  return declare(std::move(pending), n);
}

RopeFrequencies Weights::placed(RopeFrequencies frequencies) {
  const auto place = [&](const std::vector<float>& values) -> const Vector* {
    return values.empty() ? nullptr : declare({.values = values}, std::ssize(values));
  };
  frequencies.table = place(frequencies.inverse);
  frequencies.table_long = place(frequencies.inverse_long);
  return frequencies;
}

// Biases are declared before it is known which layer they belong to.
void Weights::put_on_host(const Vector* bias) {
  for (auto& pending : pending_vectors_) pending.on_host |= pending.vector == bias;
}

// Experts on both sides need their bias on both.
const Vector* Weights::copy_on_host(const Vector* bias) {
  for (const auto& pending : pending_vectors_) {
    if (pending.vector != bias) continue;
    PendingVector copy = pending;
    copy.on_host = true;
    return declare(std::move(copy), bias->n);
  }
  return bias;
}

size_t Weights::vector_bytes(bool on_host) const {
  size_t total = 0;
  for (const auto& pending : pending_vectors_) {
    if (pending.on_host == on_host) total += Arena::padded(static_cast<size_t>(pending.vector->n) * sizeof(float));
  }
  return total;
}

void Weights::pack_vectors() {
  vector_arena_ = std::make_unique<Arena>("vectors", vector_bytes(false), ops_.device().memory());
  host_vector_arena_ = std::make_unique<Arena>("vectors in host memory", vector_bytes(true));
  for (auto& pending : pending_vectors_) {
    std::vector<float> values = std::move(pending.values);
    values.resize(static_cast<size_t>(pending.vector->n), 0.0f);
    float* out = values.data();
    for (const auto& piece : pending.pieces) {
      source_.fetch(piece.view, ops_.pool());
      if (piece.view.data != nullptr) dequantize_row(piece.view.dtype, piece.view.data, out, piece.n);
      out += piece.n;
    }
    if (pending.add != 0) std::for_each(values.begin(), values.end(), [&](float& value) { value += pending.add; });
    if (pending.map != nullptr) std::transform(values.begin(), values.end(), values.begin(), pending.map);
    Arena& arena = pending.on_host ? *host_vector_arena_ : *vector_arena_;
    std::byte* to = arena.take(values.size() * sizeof(float));
    arena.memory().write(to, reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float));
    pending.vector->data = reinterpret_cast<const float*>(to);
  }
  pending_vectors_.clear();
}

const WeightView* Weights::table(const TensorName& name, int64_t rows, int64_t cols) {
  const WeightView view = find(resolve(name), rows, cols);
  declare({.gguf = name.gguf, .shape = {rows, cols}, .pieces = {view}});
  if (name.gguf == "token_embd.weight") sites_[0] = {nullptr, {{.name = name, .rows = cols}}, rows};
  return &tables_.emplace_back(view);
}

// GPU kernels need groups of gate and up rows to alternate. CPU kernels read the up rows after all gate rows.
bool Weights::can_gate(const Linear& linear, Activation activation) const {
  if (activation != Activation::Silu || linear.bias != nullptr || linear.parts.size() != 1) return false;
  if (ops_.is_forced(ActivationOp::kName)) return false;
  const LinearLayout& layout = *linear.parts[0].weights.layout;
  const int64_t multiple = on_device(linear) ? layout.gate_group() : layout.gate_multiple();
  return multiple > 0 && linear.n / 2 % multiple == 0;
}

namespace {

// Gate and up as two sources, which uploads of gated layers take; false: they are more.
bool in_halves(std::vector<WeightView>& sources, int64_t half) {
  if (sources.size() > 2) return false;
  if (sources.size() == 2) return true;
  WeightView up = sources[0];
  up.data = up.row(half);
  sources.push_back(up);
  for (auto& source : sources) source.rows = half;
  return true;
}

}  // namespace

// The output must be that of the host's layer.
void Weights::gate_streamed(Linear& linear, Activation activation) {
  auto& streamed = const_cast<Linear&>(*linear.streamed);
  for (auto& pending : pending_) {
    if (pending.linear != &streamed) continue;
    streamed.gated = can_gate(streamed, activation) && (!on_device() || in_halves(pending.sources, linear.n / 2));
  }
  if (!streamed.gated) drop_streamed(linear);
}

void Weights::drop_streamed(Linear& linear) {
  std::erase_if(pending_, [&](const Pending& pending) { return pending.linear == linear.streamed; });
  linear.streamed = nullptr;
}

const Linear* Weights::gate_up(const std::vector<LinearPart>& parts, int64_t k, Activation activation) {
  linear(parts, k);
  Linear& made = linears_.back();
  if (!can_gate(made, activation) || pending_.back().transposed) return &made;
  const int64_t half = made.n / 2;
  auto& sources = pending_.back().sources;
  if (on_device(made) && !in_halves(sources, half)) return &made;
  made.gated = true;
  if (made.streamed != nullptr) gate_streamed(made, activation);
  if (expects_adapters_) add_ungated(made);
  return &made;
}

// The same layer without its gate (Linear::apart). pack() gives it the weights of the gated layer.
void Weights::add_ungated(Linear& linear) {
  Linear& apart = linears_.emplace_back(linear);
  apart.gated = false;
  apart.site = -1;
  apart.streamed = nullptr;  // its columns have another order
  linear.apart = &apart;
}

void Weights::add_site(Linear& linear, const std::vector<LinearPart>& parts, std::vector<LinearPart> other_parts) {
  const size_t most = std::max(parts.size(), other_parts.size());
  if (most > LoraWeights::kMostParts) return;
  linear.site = static_cast<int>(sites_.size());
  linear.site_parts = static_cast<int>(most);
  sites_.push_back({.linear = &linear, .parts = parts, .k = linear.k, .other_parts = std::move(other_parts)});
}

const Linear* Weights::linear(const std::vector<LinearPart>& parts, int64_t k, std::vector<LinearPart> other_parts) {
  constexpr size_t kMostStreamed = size_t{512} << 20;  // two stages hold a whole layer
  const size_t unit = next_unit();
  // The streamed layer and its parts are declared first: callers take the last ones to be the layer's own.
  Linear* streamed = is_on_host(unit) && host_.stream ? &linears_.emplace_back() : nullptr;
  Linear& linear = linears_.emplace_back();
  linear.k = k;
  linear.on_host = is_on_host(unit);
  linear.streamed = streamed;
  if (streamed != nullptr) streamed->k = k;
  const auto end_run = [&](std::vector<WeightView> sources, const LinearPart& like) {
    if (streamed != nullptr) add_part(unit, *streamed, sources, like, true);
    add_part(unit, linear, std::move(sources), like);
  };
  std::vector<WeightView> run;  // adjacent parts of one format and order form one matrix
  const LinearPart* like = &parts.front();
  for (const auto& part : parts) {
    const WeightView view = find(part, k);
    const bool same = part.transposed == like->transposed && part.stored_by == like->stored_by;
    if (!run.empty() && (run.front().dtype != view.dtype || !same)) end_run(std::exchange(run, {}), *like);
    like = &part;
    read_by_.emplace(&linear, view);
    const std::vector<WeightView> ordered = in_layer_order(view, part.stored_by);
    run.insert(run.end(), ordered.begin(), ordered.end());
    declare({.gguf = part.name.gguf, .shape = {part.rows, k}, .pieces = ordered, .transposed = part.transposed});
    linear.n += part.rows;
  }
  end_run(std::move(run), *like);
  linear.bias = stacked_bias(parts);
  if (streamed != nullptr) {
    streamed->n = linear.n;
    streamed->bias = linear.bias;
    if (linear.bias != nullptr) linear.bias = copy_on_host(linear.bias);
    if (millrace::streamed_bytes(*streamed) > kMostStreamed) drop_streamed(linear);
  }
  if (linear.on_host) put_on_host(linear.bias);
  add_site(linear, parts, std::move(other_parts));
  return &linear;
}

void Weights::add_part(size_t unit, Linear& linear, std::vector<WeightView> sources, const LinearPart& like,
                       bool streamed) {
  int64_t n = 0;
  for (const auto& view : sources) n += like.transposed ? view.cols : view.rows;
  const DType format = sources.front().dtype;
  Ops& ops = ops_of(linear.on_host);
  const auto& layout =
      choose_layout(format, n, linear.k, ops.precision(), ops.kernels(), ops.planner<LinearOp>(), ops.working());
  const bool stored_in_order = !like.transposed && like.stored_by == RowGroups();
  if (streamed || !layout.in_place(format, n, linear.k) || !stored_in_order) {
    linear.parts.push_back({{format, n, linear.k, &layout, nullptr}, {}});
    pending_.push_back({unit, &linear, linear.parts.size() - 1, std::move(sources), like.transposed, streamed});
    return;
  }
  for (const auto& view : sources) {  // read in place, so parts stay separate
    linear.parts.push_back({{format, view.rows, linear.k, &layout, view.data}, {}});
    in_place_.push_back({unit, linear.on_host, view});
  }
}

WeightView Weights::find(const LinearPart& part, int64_t k) {
  const std::string name = resolve(part.name);
  if (!part.transposed) return find(name, part.rows, k);
  const WeightView view = find(name, k, part.rows);
  if (!can_transpose(view.dtype)) {
    fail(ErrorKind::Unsupported, "{}: tensor '{}' is stored as [in, out], which is not supported in {}",
         source_.origin(), name, millrace::name(view.dtype));
  }
  return view;
}

std::vector<WeightView> Weights::find_bias(const std::string& name, const LinearPart& part) {
  WeightView view = find(name, 0, part.rows);
  if (part.stored_by == RowGroups()) return {view};
  if (info(view.dtype).block > 1) fail(ErrorKind::Unsupported, "{}: bias '{}' is quantized", source_.origin(), name);
  std::swap(view.rows, view.cols);
  return in_layer_order(view, part.stored_by);
}

// Null if no part has a bias.
const Vector* Weights::stacked_bias(const std::vector<LinearPart>& parts) {
  PendingVector bias;
  int64_t n = 0;
  bool any = false;
  for (const auto& part : parts) {
    std::string name = resolve(part.bias_of);
    if (name.empty()) name = resolve(part.name);
    name = bias_name(std::move(name));
    const bool has = !name.empty() && has_optional(name);
    if (!has) bias.pieces.push_back({{}, part.rows});
    if (has) {
      const std::vector<WeightView> views = find_bias(name, part);
      for (const auto& view : views) bias.pieces.push_back({view, view.rows * view.cols});
      declare({.gguf = bias_name(part.bias_of.gguf.empty() ? part.name.gguf : part.bias_of.gguf),
               .shape = {part.rows},
               .pieces = views});
    }
    n += part.rows;
    any |= has;
  }
  return any ? declare(std::move(bias), n) : nullptr;
}

std::vector<std::string> Weights::matrices_of(const void* layer, int64_t k, int64_t groups) const {
  std::vector<std::string> names;
  const auto [first, last] = read_by_.equal_range(layer);
  for (const DeclaredTensor& tensor : declared_) {
    if (tensor.pieces.empty()) continue;
    const bool has_shape = tensor.shape.size() == (groups == 0 ? 2u : 3u) && tensor.shape.back() == k &&
                           (groups == 0 || tensor.shape.front() == groups);
    const std::byte* data = tensor.pieces.front().data;
    const auto holds = [&](const auto& read) {
      return data >= read.second.data && data < read.second.data + read.second.bytes();
    };
    if (has_shape && std::any_of(first, last, holds)) names.push_back(tensor.gguf);
  }
  return names;
}

void Weights::check_all_used() const {
  for (const auto& [pattern, found] : optional_) {
    if (found.there.empty() || found.absent.empty()) continue;
    fail(ErrorKind::BadFile, "{}: tensor '{}' is missing, but there is '{}'", source_.origin(), found.absent,
         found.there);
  }
  for (const auto& tensor : source_.tensors()) {
    if (used_.contains(tensor.name) || tensor.bytes == 0) continue;  // a model with 0 shared experts has such tensors
    const auto matters_not = [&](const std::string& fragment) {
      return tensor.name.find(fragment) != std::string::npos;
    };
    if (std::any_of(ignored_.begin(), ignored_.end(), matters_not)) continue;
    fail(
        ErrorKind::Unsupported,
        "{}: tensor '{}' is not part of architecture '{}' as it is implemented here; results would be wrong without it",
        source_.origin(), tensor.name, source_.config().architecture());
  }
}

Weights::Layer::Layer(Weights& weights, int64_t index, const TensorName& pattern) : weights_(weights) {
  const auto numbered = [&](std::string text) {
    const auto at = text.find("{}");
    return at == std::string::npos ? text : text.replace(at, 2, std::to_string(index));
  };
  prefix_ = {numbered(pattern.gguf), numbered(pattern.hf)};
}

const TensorInfo* Weights::Layer::find(const TensorName& name) const {
  return weights_.source_.find(weights_.resolve(below(name)));
}

const Linear* Weights::Layer::linear(std::vector<LinearPart> parts, int64_t k, std::vector<LinearPart> other_parts) {
  for (auto* list : {&parts, &other_parts}) {
    for (auto& part : *list) part.name = below(part.name);
  }
  return weights_.linear(parts, k, std::move(other_parts));
}

const Grouped* Weights::Layer::experts(Grouped settings, GroupSources sources, std::vector<LinearPart> parts,
                                       LinearPart whole) {
  for (auto& part : parts) part.name = below(part.name);
  whole.name = below(whole.name);
  return weights_.experts(std::move(settings), std::move(sources), std::move(parts), std::move(whole));
}

const Linear* Weights::Layer::gate_up(std::vector<LinearPart> parts, int64_t k, Activation activation) {
  for (auto& part : parts) part.name = below(part.name);
  return weights_.gate_up(parts, k, activation);
}

}  // namespace millrace
