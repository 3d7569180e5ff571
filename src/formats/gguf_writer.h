// Writes GGUF version 3 files that llama.cpp and the gguf package on PyPI read.
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

// Keys and values in their encoded form.
class GgufMetadataBuilder {
 public:
  void add_u32(std::string_view key, uint32_t value);
  void add_u32_list(std::string_view key, std::span<const uint32_t> values);
  void add_bool(std::string_view key, bool value);
  void add_f32(std::string_view key, float value);
  void add_string(std::string_view key, std::string_view value);
  void add_i32_list(std::string_view key, std::span<const int32_t> values);
  void add_u8_list(std::string_view key, std::string_view bytes);
  void add_f32_list(std::string_view key, std::span<const float> values);
  void add_bool_list(std::string_view key, const std::vector<bool>& values);
  void add_string_list(std::string_view key, std::span<const std::string> values);
  void copy(const GgufMetadata::Entry& entry);  // of any type

  uint64_t count() const { return count_; }
  const std::string& encoded() const { return encoded_; }

 private:
  void begin(std::string_view key, GgufType type);
  void begin_list(std::string_view key, GgufType type, size_t count);
  uint64_t count_ = 0;
  std::string encoded_;
};

struct GgufTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;  // outermost first
};

// Everything before the tensor data, padded to its alignment.
std::string encode_gguf_header(const GgufMetadataBuilder& metadata, std::span<const GgufTensor> tensors);

// Writes a file as a stream: the header first, then the tensors' bytes in list order, in pieces of any size. The file
// gets its final name only when complete.
class GgufWriter {
 public:
  GgufWriter(std::filesystem::path path, const GgufMetadataBuilder& metadata, std::vector<GgufTensor> tensors);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;

  void write(std::span<const std::byte> bytes);  // must not cross the end of a tensor
  void finish();                                 // after the last byte of the last tensor

 private:
  void put(const void* bytes, size_t count);

  std::filesystem::path path_, partial_;
  std::vector<GgufTensor> tensors_;
  std::FILE* file_ = nullptr;
  size_t tensor_ = 0;   // index of the current tensor
  size_t written_ = 0;  // bytes written of it
};

}  // namespace millrace
