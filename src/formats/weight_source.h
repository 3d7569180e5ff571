// A model's weights and hyper-parameters: from a GGUF file, a Hugging Face folder or synthetic numbers. The sources
// differ only in the names that their convention uses.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "formats/config.h"
#include "formats/derived_tensors.h"
#include "formats/gguf_metadata.h"
#include "formats/tensor_info.h"
#include "tensor/matrix.h"

namespace millrace {

class WeightSource {
 public:
  enum class Convention { Gguf, HuggingFace };

  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;

  virtual Convention convention() const = 0;  // whose tensor names and config keys it uses
  virtual const Config& config() const = 0;
  const std::string& origin() const { return origin_; }  // path or name; appears in messages

  // GGUF metadata (tokenizer, chat template); null for Hugging Face folders.
  virtual const GgufMetadata* gguf() const { return nullptr; }
  // A text file next to the weights ("tokenizer.json", "generation_config.json"); nullopt if absent.
  virtual std::optional<std::string> text(std::string_view file_name) const { return std::nullopt; }

  std::span<const MappedFile> files() const { return files_; }  // mapped files of the weights
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // The tensor, which must have this shape; leading dimensions of one are ignored. A vector becomes one row; outer
  // dimensions beyond two are folded into rows. Errors name the tensor, the expected and the actual shape. The system
  // reads pages on first access.
  WeightView tensor(std::string_view name, std::span<const int64_t> shape) const;
  WeightView tensor(std::string_view name, std::initializer_list<int64_t> shape) const {
    return tensor(name, std::span(shape.begin(), shape.size()));
  }

  // Computes the view's bytes if no file has them (derived_tensors.h). Whoever reads a view calls it first.
  void fetch(const WeightView& view, ThreadPool& pool) const { derived_.fetch(view, pool); }
  // Memory that fetch() takes.
  size_t fetched_bytes(const WeightView& view) const { return derived_.contains(view) ? view.bytes() : 0; }
  // Drops the view's pages from memory, for example after packing. A view of a file stays readable, but slowly; others
  // must be fetched again.
  virtual void release(const WeightView& view) const;

 protected:
  explicit WeightSource(std::string origin) : origin_(std::move(origin)) {}
  const MappedFile& map_file(const std::filesystem::path& path);
  void add_tensors(std::vector<TensorInfo> tensors);  // a duplicate name is a bad file
  void derive(std::vector<DerivedTensor> tensors);    // they take the place of their parts
  // Called by tensor() for an unknown name; sources override it to explain why it is missing.
  [[noreturn]] virtual void fail_absent(std::string_view name) const;
  // The tensor's bytes, at an aligned address.
  virtual const std::byte* bytes_of(const TensorInfo& tensor) const;

 private:
  std::string origin_;
  std::vector<MappedFile> files_;
  std::vector<TensorInfo> tensors_;
  DerivedTensors derived_;
  std::unordered_map<std::string, size_t> index_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::unique_ptr<std::byte[]>> copies_;  // copies of misaligned tensors
};

// A .gguf file (any part of a split one), a Hugging Face folder, or "synthetic:SHAPE[:DTYPE]".
std::unique_ptr<WeightSource> open_weights(const std::string& model);

}  // namespace millrace
