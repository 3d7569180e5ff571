#include "formats/weight_source.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace millrace {
namespace {

std::span<const int64_t> without_leading_ones(std::span<const int64_t> shape) {
  while (!shape.empty() && shape.front() == 1) shape = shape.subspan(1);
  return shape;
}

}  // namespace

const MappedFile& WeightSource::map_file(const std::filesystem::path& path) { return files_.emplace_back(path); }

void WeightSource::release(const WeightView& view) const {
  derived_.release(view);
  for (const MappedFile& file : files_) {
    const auto bytes = file.bytes();
    if (view.data >= bytes.data() && view.data < bytes.data() + bytes.size()) file.release({view.data, view.bytes()});
  }
}

void WeightSource::add_tensors(std::vector<TensorInfo> tensors) {
  tensors_.reserve(tensors_.size() + tensors.size());
  for (TensorInfo& tensor : tensors) {
    if (!index_.emplace(tensor.name, tensors_.size()).second) {
      fail(ErrorKind::BadFile, "{}: tensor '{}' appears twice", origin_, tensor.name);
    }
    tensors_.push_back(std::move(tensor));
  }
}

void WeightSource::derive(std::vector<DerivedTensor> tensors) {
  std::unordered_set<std::string> parts;
  std::vector<TensorInfo> infos;
  for (DerivedTensor& tensor : tensors) {
    parts.insert(tensor.parts.begin(), tensor.parts.end());
    infos.push_back(tensor.info);
    derived_.add(std::move(tensor));
  }
  std::erase_if(tensors_, [&](const TensorInfo& tensor) { return parts.contains(tensor.name); });
  std::vector<TensorInfo> kept = std::exchange(tensors_, {});
  index_.clear();
  add_tensors(std::move(kept));
  add_tensors(std::move(infos));
}

const TensorInfo* WeightSource::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void WeightSource::fail_absent(std::string_view name) const {
  fail(ErrorKind::BadFile, "{}: tensor '{}' is missing", origin_, name);
}

WeightView WeightSource::tensor(std::string_view name, std::span<const int64_t> shape) const {
  const TensorInfo* found = find(name);
  if (found == nullptr) fail_absent(name);
  const auto wanted = without_leading_ones(shape), there = without_leading_ones(found->shape);
  // GGUF files and callers may drop dimensions of one, or add them. Hugging Face does not add any.
  const bool deeper =
      convention() == Convention::HuggingFace && found->shape.size() > std::max<size_t>(shape.size(), 1);
  if (deeper || !std::equal(wanted.begin(), wanted.end(), there.begin(), there.end())) {
    fail(ErrorKind::BadFile, "{}: tensor '{}' should be {}, the file has {}", origin_, name, to_string(shape),
         to_string(found->shape));
  }
  if (!found->dtype) {
    fail(ErrorKind::Unsupported, "{}: tensor '{}' is in {}, which cannot be run; use another quantization or export",
         origin_, name, found->dtype_name);
  }
  const int64_t cols = there.empty() ? 1 : there.back();
  const int64_t rows = cols == 0 ? 0 : *element_count(there) / cols;
  return {*found->dtype, rows, cols, bytes_of(*found)};
}

// Kernels read halves and floats in place. No format enforces alignment, so a misaligned tensor is copied once.
const std::byte* WeightSource::bytes_of(const TensorInfo& tensor) const {
  if (const std::byte* derived = derived_.address(tensor.name)) return derived;
  const size_t alignment = tensor.dtype == DType::F32 ? sizeof(float) : sizeof(uint16_t);
  if (reinterpret_cast<uintptr_t>(tensor.data) % alignment == 0) return tensor.data;
  const std::lock_guard lock(mutex_);
  auto& copy = copies_[tensor.name];
  if (copy == nullptr) {
    copy = std::make_unique<std::byte[]>(tensor.bytes);
    std::memcpy(copy.get(), tensor.data, tensor.bytes);
  }
  return copy.get();
}

}  // namespace millrace
