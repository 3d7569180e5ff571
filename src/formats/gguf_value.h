// One metadata value of a GGUF file: a typed view into the file's bytes, validated when the file is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace millrace {

enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };

std::string_view name(GgufType type);
size_t scalar_bytes(GgufType type);  // 0 for strings and arrays

// Accessors return nullopt if the value has another type; the caller knows the key and reports it.
class GgufValue {
 public:
  // `encoded` is the value without its type word, validated by GgufReader.
  GgufValue(GgufType type, std::span<const std::byte> encoded) : type_(type), encoded_(encoded) {}

  GgufType type() const { return type_; }
  std::span<const std::byte> encoded() const { return encoded_; }

  std::optional<int64_t> integer() const;  // any integer type; nullopt when beyond int64
  std::optional<double> number() const;    // any integer or float type
  std::optional<bool> boolean() const;
  std::optional<std::string_view> string() const;  // raw bytes; some files hold invalid UTF-8

  bool is_array() const { return type_ == GgufType::Array; }
  GgufType element_type() const;  // of an array
  uint64_t size() const;          // elements of an array
  std::vector<GgufValue> elements() const;
  std::optional<std::vector<std::string_view>> strings() const;  // one pass: a vocabulary has up to 256k strings
  std::optional<std::vector<double>> numbers() const;
  std::optional<std::vector<int64_t>> integers() const;

 private:
  std::span<const std::byte> payload() const;  // of an array: its elements
  GgufType type_;
  std::span<const std::byte> encoded_;
};

}  // namespace millrace
