#include "formats/imatrix.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "formats/gguf_source.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
// The least importance, relative to the mean: a column that the text never used still gets a scale that fits it.
constexpr float kLeast = 1e-4f;

std::vector<float> numbers(const WeightSource& file, const TensorInfo& tensor) {
  const WeightView view = file.tensor(tensor.name, tensor.shape);
  if (view.dtype != DType::F32) fail(ErrorKind::BadFile, "{}: '{}' is not in F32", file.origin(), tensor.name);
  std::vector<float> values(static_cast<size_t>(view.rows * view.cols));
  for (int64_t i = 0; i < view.rows; ++i)
    dequantize_row(view.dtype, view.row(i), values.data() + i * view.cols, view.cols);
  for (const float value : values) {
    if (!(value >= 0) || !std::isfinite(value))
      fail(ErrorKind::BadFile, "{}: '{}' has a number that is negative or not finite", file.origin(), tensor.name);
  }
  return values;
}

// Mean squares, relative to their mean over all columns. A text that never used an expert leaves all columns alike.
void normalize(std::span<float> sums, float count) {
  double total = 0;
  for (const float sum : sums) total += static_cast<double>(sum);
  const auto mean = static_cast<float>(total / static_cast<double>(sums.size()));
  for (float& sum : sums) sum = count > 0 && mean > 0 ? std::max(sum / mean, kLeast) : 1;
}

}  // namespace

ImatrixSums read_imatrix(const std::string& path) {
  const auto file = open_gguf(path);
  if (file->gguf()->string("general.type") != "imatrix")
    fail(ErrorKind::BadFile, "{}: is not an importance matrix (general.type)", path);
  ImatrixSums sums;
  sums.chunks = static_cast<uint32_t>(file->gguf()->integer("imatrix.chunk_count").value_or(0));
  sums.chunk_size = static_cast<uint32_t>(file->gguf()->integer("imatrix.chunk_size").value_or(0));
  for (const auto& dataset : file->gguf()->strings("imatrix.datasets").value_or(std::vector<std::string_view>()))
    sums.datasets.emplace_back(dataset);
  for (const TensorInfo& tensor : file->tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    const TensorInfo* counted = file->find(name + std::string(kCounts));
    if (counted == nullptr) fail(ErrorKind::BadFile, "{}: '{}' has no counts", path, name);
    const int64_t columns = tensor.shape.empty() ? 0 : tensor.shape.back();
    ImatrixSums::Entry entry{columns, numbers(*file, tensor), numbers(*file, *counted)};
    const auto experts = std::ssize(entry.counts);
    if (columns < 1 || experts * columns != std::ssize(entry.squares))
      fail(ErrorKind::BadFile, "{}: '{}' has {} counts, which do not match its sums", path, name, experts);
    sums.entries.emplace(name, std::move(entry));
  }
  if (sums.entries.empty()) fail(ErrorKind::BadFile, "{}: has no matrix", path);
  return sums;
}

void write_imatrix(const std::filesystem::path& path, const ImatrixSums& sums) {
  GgufMetadataBuilder metadata;
  metadata.add_string("general.type", "imatrix");
  metadata.add_string_list("imatrix.datasets", sums.datasets);
  metadata.add_u32("imatrix.chunk_count", sums.chunks);
  metadata.add_u32("imatrix.chunk_size", sums.chunk_size);
  std::vector<GgufTensor> tensors;
  for (const auto& [name, entry] : sums.entries) {
    const auto experts = std::ssize(entry.counts);
    tensors.push_back({name + std::string(kSums), DType::F32, {experts, entry.columns}});
    tensors.push_back({name + std::string(kCounts), DType::F32, {experts, 1}});
  }
  GgufWriter writer(path, metadata, tensors);
  for (const auto& [name, entry] : sums.entries) {
    writer.write(std::as_bytes(std::span(entry.squares)));
    writer.write(std::as_bytes(std::span(entry.counts)));
  }
  writer.finish();
}

Imatrix::Imatrix(std::string path, const ImatrixSums& sums)
    : path_(std::move(path)), datasets_(sums.datasets), chunks_(sums.chunks) {
  for (const auto& [name, from] : sums.entries) {
    Entry& entry = entries_[name];
    entry = {std::ssize(from.counts), from.columns, from.squares};
    const auto columns = static_cast<size_t>(entry.columns);
    for (size_t i = 0; i < from.counts.size(); ++i)
      normalize(std::span(entry.importance).subspan(i * columns, columns), from.counts[i]);
  }
}

std::span<const float> Imatrix::of(const GgufTensor& tensor) const {
  const auto found = entries_.find(tensor.name);
  if (found == entries_.end()) return {};
  const Entry& entry = found->second;
  const int64_t experts = tensor.shape.size() > 2 ? tensor.shape.front() : 1;
  if (entry.columns != tensor.shape.back() || entry.experts != experts) {
    fail(ErrorKind::Usage, "{}: '{}' has {} x {} columns, the model's has {} x {}; it belongs to another model", path_,
         tensor.name, entry.experts, entry.columns, experts, tensor.shape.back());
  }
  return entry.importance;
}

void Imatrix::check_belongs_to(std::span<const TensorInfo> tensors) const {
  const auto known = [&](const TensorInfo& tensor) { return entries_.contains(tensor.name); };
  if (std::none_of(tensors.begin(), tensors.end(), known))
    fail(ErrorKind::Usage, "{}: has no matrix of this model", path_);
}

void Imatrix::describe(GgufMetadataBuilder& out) const {
  out.add_string("quantize.imatrix.file", path_);
  if (!datasets_.empty()) out.add_string("quantize.imatrix.dataset", datasets_.front());
  out.add_u32("quantize.imatrix.entries_count", static_cast<uint32_t>(entries_.size()));
  out.add_u32("quantize.imatrix.chunks_count", chunks_);
}

}  // namespace millrace
