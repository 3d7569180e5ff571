#include "formats/gguf_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "formats/tensor_info.h"

namespace millrace {
namespace {

constexpr size_t kAlignment = 32;

size_t padding(size_t bytes) { return (kAlignment - bytes % kAlignment) % kAlignment; }

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void append_string(std::string& to, std::string_view text) {
  append<uint64_t>(to, text.size());
  to.append(text);
}

size_t bytes_of(const GgufTensor& tensor) {
  const auto elements = element_count(tensor.shape);
  MR_ASSERT(elements && (tensor.shape.empty() ? 1 : tensor.shape.back()) % info(tensor.dtype).block == 0);
  return row_bytes(tensor.dtype, *elements);
}

}  // namespace

void GgufMetadataBuilder::begin(std::string_view key, GgufType type) {
  ++count_;
  append_string(encoded_, key);
  append(encoded_, static_cast<uint32_t>(type));
}

void GgufMetadataBuilder::add_u32(std::string_view key, uint32_t value) {
  begin(key, GgufType::U32);
  append(encoded_, value);
}

void GgufMetadataBuilder::add_bool(std::string_view key, bool value) {
  begin(key, GgufType::Bool);
  append(encoded_, static_cast<uint8_t>(value));
}

void GgufMetadataBuilder::begin_list(std::string_view key, GgufType type, size_t count) {
  begin(key, GgufType::Array);
  append(encoded_, static_cast<uint32_t>(type));
  append(encoded_, static_cast<uint64_t>(count));
}

void GgufMetadataBuilder::add_u32_list(std::string_view key, std::span<const uint32_t> values) {
  begin_list(key, GgufType::U32, values.size());
  for (const uint32_t value : values) append(encoded_, value);
}

void GgufMetadataBuilder::add_i32_list(std::string_view key, std::span<const int32_t> values) {
  begin_list(key, GgufType::I32, values.size());
  for (const int32_t value : values) append(encoded_, value);
}

void GgufMetadataBuilder::add_u8_list(std::string_view key, std::string_view bytes) {
  begin_list(key, GgufType::U8, bytes.size());
  encoded_ += bytes;
}

void GgufMetadataBuilder::add_f32_list(std::string_view key, std::span<const float> values) {
  begin_list(key, GgufType::F32, values.size());
  for (const float value : values) append(encoded_, value);
}

void GgufMetadataBuilder::add_bool_list(std::string_view key, const std::vector<bool>& values) {
  begin_list(key, GgufType::Bool, values.size());
  for (const bool value : values) append(encoded_, static_cast<uint8_t>(value));
}

void GgufMetadataBuilder::add_string_list(std::string_view key, std::span<const std::string> values) {
  begin_list(key, GgufType::String, values.size());
  for (const std::string& value : values) append_string(encoded_, value);
}

void GgufMetadataBuilder::add_f32(std::string_view key, float value) {
  begin(key, GgufType::F32);
  append(encoded_, value);
}

void GgufMetadataBuilder::add_string(std::string_view key, std::string_view value) {
  begin(key, GgufType::String);
  append_string(encoded_, value);
}

void GgufMetadataBuilder::copy(const GgufMetadata::Entry& entry) {
  begin(entry.key, entry.value.type());
  const auto bytes = entry.value.encoded();
  encoded_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string encode_gguf_header(const GgufMetadataBuilder& metadata, std::span<const GgufTensor> tensors) {
  std::string header = "GGUF";
  append<uint32_t>(header, 3);
  append<uint64_t>(header, tensors.size());
  append<uint64_t>(header, metadata.count());
  header += metadata.encoded();
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    append_string(header, tensor.name);
    append(header, static_cast<uint32_t>(tensor.shape.size()));
    for (auto dimension = tensor.shape.rbegin(); dimension != tensor.shape.rend(); ++dimension) {
      append(header, static_cast<uint64_t>(*dimension));
    }
    append(header, static_cast<uint32_t>(info(tensor.dtype).ggml_id));
    append(header, offset);
    offset += bytes_of(tensor) + padding(bytes_of(tensor));
  }
  header.append(padding(header.size()), '\0');
  return header;
}

GgufWriter::GgufWriter(std::filesystem::path path, const GgufMetadataBuilder& metadata, std::vector<GgufTensor> tensors)
    : path_(std::move(path)),
      partial_(fmt::format("{}.{}.partial", path_.string(), ::getpid())),
      tensors_(std::move(tensors)) {
  file_ = std::fopen(partial_.c_str(), "wb");
  if (file_ == nullptr) fail_errno(path_.string());
  const std::string header = encode_gguf_header(metadata, tensors_);
  put(header.data(), header.size());
}

GgufWriter::~GgufWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void GgufWriter::put(const void* bytes, size_t count) {
  if (count > 0 && std::fwrite(bytes, 1, count, file_) != count) fail_errno(path_.string());
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  MR_ASSERT(tensor_ < tensors_.size());
  const size_t total = bytes_of(tensors_[tensor_]);
  MR_ASSERT(bytes.size() <= total - written_);
  put(bytes.data(), bytes.size());
  written_ += bytes.size();
  if (written_ < total) return;
  const std::byte zeroes[kAlignment] = {};
  put(zeroes, padding(total));
  ++tensor_;
  written_ = 0;
}

void GgufWriter::finish() {
  MR_ASSERT(tensor_ == tensors_.size());
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (closed && std::rename(partial_.c_str(), path_.c_str()) == 0) return;
  const int error = errno;
  std::remove(partial_.c_str());
  errno = error;
  fail_errno(path_.string());
}

}  // namespace millrace
