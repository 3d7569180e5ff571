#include "models/weights.h"

#include <algorithm>

#include "base/error.h"
#include "dataflow/layout.h"
#include "tensor/dequantize.h"

namespace millrace {

Weights::Weights(const WeightSource& source, Ops& ops) : source_(source), ops_(ops) {
  // Tables of rotary frequencies are read, where they matter, with the config.
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

const float* Weights::vector(const TensorName& name, int64_t n, float add) {
  const WeightView view = find(resolve(name), 0, n);
  auto& values = vectors_.emplace_back(static_cast<size_t>(n));
  dequantize_row(view.dtype, view.data, values.data(), n);
  if (add != 0) std::for_each(values.begin(), values.end(), [&](float& value) { value += add; });
  return values.data();
}

const float* Weights::optional_vector(const TensorName& name, int64_t n) {
  return has(name) ? vector(name, n) : nullptr;
}

WeightView Weights::table(const TensorName& name, int64_t rows, int64_t cols) {
  const WeightView view = find(resolve(name), rows, cols);
  in_place_bytes_ += view.bytes();
  return view;
}

const Linear* Weights::linear(const std::vector<LinearPart>& parts, int64_t k) {
  Linear& linear = linears_.emplace_back();
  linear.k = k;
  std::vector<WeightView> run;  // neighbours of one format become one matrix
  for (const auto& part : parts) {
    const WeightView view = find(resolve(part.name), part.rows, k);
    if (!run.empty() && run.front().dtype != view.dtype) add_part(linear, std::exchange(run, {}));
    run.push_back(view);
    linear.n += part.rows;
  }
  add_part(linear, std::move(run));
  linear.bias = stacked_bias(parts, linear.n);
  return &linear;
}

void Weights::add_part(Linear& linear, std::vector<WeightView> sources) {
  int64_t n = 0;
  for (const auto& view : sources) n += view.rows;
  const DType format = sources.front().dtype;
  const auto& layout = choose_layout(format, n, linear.k, ops_.precision(), ops_.kernels(), ops_.linear_planner());
  if (!layout.in_place(format, n, linear.k)) {
    linear.parts.push_back({{format, n, linear.k, &layout, nullptr}, {}});
    pending_.push_back({&linear, linear.parts.size() - 1, std::move(sources)});
    return;
  }
  for (const auto& view : sources) {  // read where they are, so they stay apart
    linear.parts.push_back({{format, view.rows, linear.k, &layout, view.data}, {}});
    in_place_bytes_ += view.bytes();
  }
}

const float* Weights::stacked_bias(const std::vector<LinearPart>& parts, int64_t n) {
  const auto bias_name = [&](const LinearPart& part) {
    std::string name = resolve(part.name);
    const auto at = name.rfind(".weight");
    return at == std::string::npos ? std::string() : name.replace(at, std::string::npos, ".bias");
  };
  const auto has_bias = [&](const LinearPart& part) { return source_.find(bias_name(part)) != nullptr; };
  if (std::none_of(parts.begin(), parts.end(), has_bias)) return nullptr;
  auto& bias = vectors_.emplace_back(static_cast<size_t>(n), 0.0f);
  float* out = bias.data();
  for (const auto& part : parts) {
    if (has_bias(part)) {
      const WeightView view = find(bias_name(part), 0, part.rows);
      dequantize_row(view.dtype, view.data, out, part.rows);
    }
    out += part.rows;
  }
  return bias.data();
}

void Weights::check_all_used() const {
  for (const auto& tensor : source_.tensors()) {
    if (used_.contains(tensor.name)) continue;
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

size_t Weights::packed_bytes() const {
  size_t total = 0;
  for (const auto& pending : pending_) {
    const auto& w = pending.linear->parts[pending.part].weights;
    total += Arena::padded(w.layout->bytes(w.format, w.n, w.k));
  }
  return total;
}

void Weights::pack(const std::function<void(int64_t, int64_t)>& progress) {
  arena_ = std::make_unique<Arena>("weights", packed_bytes());
  const auto total = static_cast<int64_t>(arena_->capacity());
  for (const auto& pending : pending_) {
    auto& w = pending.linear->parts[pending.part].weights;
    std::byte* data = arena_->take(w.layout->bytes(w.format, w.n, w.k));
    w.layout->pack(pending.sources, data, ops_.pool());
    w.data = data;
    for (const auto& view : pending.sources) source_.release(view);
    progress(static_cast<int64_t>(arena_->used()), total);
  }
  pending_.clear();
}

Weights::Layer::Layer(Weights& weights, int64_t index, const TensorName& pattern) : weights_(weights) {
  const auto numbered = [&](std::string text) {
    const auto at = text.find("{}");
    return at == std::string::npos ? text : text.replace(at, 2, std::to_string(index));
  };
  prefix_ = {numbered(pattern.gguf), numbered(pattern.hf)};
}

const Linear* Weights::Layer::linear(std::vector<LinearPart> parts, int64_t k) {
  for (auto& part : parts) part.name = below(part.name);
  return weights_.linear(parts, k);
}

}  // namespace millrace
