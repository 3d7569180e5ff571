// Where a model's weights and hyper-parameters come from: a GGUF file, a Hugging Face folder or synthetic numbers. All
// look the same from here, apart from the names their convention uses.
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
#include "formats/gguf_metadata.h"
#include "formats/tensor_info.h"
#include "tensor/matrix.h"

namespace millrace {

class WeightSource {
 public:
  enum class Convention { Gguf, HuggingFace };

  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;

  virtual Convention convention() const = 0;  // which names of tensors and keys it speaks
  virtual const Config& config() const = 0;
  const std::string& origin() const { return origin_; }  // path or name, for messages

  // The metadata of GGUF (tokenizer, chat template); null in the other convention.
  virtual const GgufMetadata* gguf() const { return nullptr; }
  // A text file beside the weights ("tokenizer.json", "generation_config.json"); nullopt: there is none.
  virtual std::optional<std::string> text(std::string_view file_name) const { return std::nullopt; }

  std::span<const MappedFile> files() const { return files_; }  // that the weights are read from
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // The tensor, which must have this shape; leading dimensions of one do not count. A vector is one row, outer
  // dimensions beyond two are folded into rows. Throws an error that names the tensor, what was wanted and what is
  // there. Pages are read when they are touched.
  WeightView tensor(std::string_view name, std::span<const int64_t> shape) const;
  WeightView tensor(std::string_view name, std::initializer_list<int64_t> shape) const {
    return tensor(name, std::span(shape.begin(), shape.size()));
  }

  // The view's pages are no longer needed: its numbers are packed elsewhere. It may still be read (slowly).
  virtual void release(const WeightView& view) const;

 protected:
  explicit WeightSource(std::string origin) : origin_(std::move(origin)) {}
  const MappedFile& map_file(const std::filesystem::path& path);
  void add_tensors(std::vector<TensorInfo> tensors);  // a name that is already there is a bad file
  // tensor() found no such name; a source that knows why says so.
  [[noreturn]] virtual void fail_absent(std::string_view name) const;
  // The tensor's bytes, at an address that its elements can be read from.
  virtual const std::byte* bytes_of(const TensorInfo& tensor) const;

 private:
  std::string origin_;
  std::vector<MappedFile> files_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> index_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::unique_ptr<std::byte[]>> copies_;  // of tensors at odd addresses
};

// A .gguf file (any part of a split one), a Hugging Face folder, or "synthetic:SHAPE[:DTYPE]".
std::unique_ptr<WeightSource> open_weights(const std::string& model);

}  // namespace millrace
