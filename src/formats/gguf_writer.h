// Writes GGUF version 3 files that llama.cpp and PyPI's gguf read.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_metadata.h"
#include "tensor/dtype.h"

namespace millrace {

// Keys and values as the file holds them.
class GgufMetadataBuilder {
 public:
  void add_u32(std::string_view key, uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_string(std::string_view key, std::string_view value);
  void copy(const GgufMetadata::Entry& entry);  // whatever its type

  uint64_t count() const { return count_; }
  const std::string& encoded() const { return encoded_; }

 private:
  void begin(std::string_view key, GgufType type);
  uint64_t count_ = 0;
  std::string encoded_;
};

struct GgufTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;  // outermost first
};

// Everything before the tensors' data, padded to where the data starts.
std::string encode_gguf_header(const GgufMetadataBuilder& metadata, std::span<const GgufTensor> tensors);

// Streams a file: the header at once, then the tensors' bytes in the order of the list, in pieces of any size. The file
// appears under its name only when it is complete.
class GgufWriter {
 public:
  GgufWriter(std::filesystem::path path, const GgufMetadataBuilder& metadata, std::vector<GgufTensor> tensors);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;

  void write(std::span<const std::byte> bytes);  // within one tensor
  void finish();                                 // after the last byte of the last tensor

 private:
  void put(const void* bytes, size_t count);

  std::filesystem::path path_, partial_;
  std::vector<GgufTensor> tensors_;
  std::FILE* file_ = nullptr;
  size_t tensor_ = 0;   // the one being written
  size_t written_ = 0;  // bytes of it so far
};

}  // namespace millrace
