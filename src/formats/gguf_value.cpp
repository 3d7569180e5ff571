#include "formats/gguf_value.h"

#include <array>
#include <cstring>

#include "base/error.h"

namespace millrace {
namespace {

constexpr size_t kArrayHeader = sizeof(uint32_t) + sizeof(uint64_t);  // element type, count

struct TypeInfo {
  std::string_view name;
  size_t bytes;
};
constexpr std::array<TypeInfo, 13> kValueTypes{{{"u8", 1},
                                                {"i8", 1},
                                                {"u16", 2},
                                                {"i16", 2},
                                                {"u32", 4},
                                                {"i32", 4},
                                                {"f32", 4},
                                                {"bool", 1},
                                                {"string", 0},
                                                {"array", 0},
                                                {"u64", 8},
                                                {"i64", 8},
                                                {"f64", 8}}};

// The file's bytes may be unaligned.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::optional<int64_t> load_integer(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::U8:
      return load<uint8_t>(at);
    case GgufType::I8:
      return load<int8_t>(at);
    case GgufType::U16:
      return load<uint16_t>(at);
    case GgufType::I16:
      return load<int16_t>(at);
    case GgufType::U32:
      return load<uint32_t>(at);
    case GgufType::I32:
      return load<int32_t>(at);
    case GgufType::I64:
      return load<int64_t>(at);
    case GgufType::U64: {
      const auto value = load<uint64_t>(at);
      return value <= uint64_t{INT64_MAX} ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> load_number(GgufType type, const std::byte* at) {
  if (type == GgufType::F32) return load<float>(at);
  if (type == GgufType::F64) return load<double>(at);
  if (type == GgufType::U64) return static_cast<double>(load<uint64_t>(at));
  if (const auto value = load_integer(type, at)) return static_cast<double>(*value);
  return std::nullopt;
}

std::string_view load_string(const std::byte* at) {
  return {reinterpret_cast<const char*>(at + sizeof(uint64_t)), static_cast<size_t>(load<uint64_t>(at))};
}

// Encoded size of the element at `at`; the reader has checked that it lies inside the file.
size_t encoded_bytes(GgufType type, const std::byte* at) {
  if (type == GgufType::String) return sizeof(uint64_t) + load_string(at).size();
  if (type != GgufType::Array) return scalar_bytes(type);
  const auto element = static_cast<GgufType>(load<uint32_t>(at));
  const auto count = load<uint64_t>(at + sizeof(uint32_t));
  size_t bytes = kArrayHeader;
  if (scalar_bytes(element) != 0) return bytes + static_cast<size_t>(count) * scalar_bytes(element);
  for (uint64_t i = 0; i < count; ++i) bytes += encoded_bytes(element, at + bytes);
  return bytes;
}

}  // namespace

std::string_view name(GgufType type) { return kValueTypes[static_cast<size_t>(type)].name; }

size_t scalar_bytes(GgufType type) { return kValueTypes[static_cast<size_t>(type)].bytes; }

std::optional<int64_t> GgufValue::integer() const { return load_integer(type_, encoded_.data()); }

std::optional<double> GgufValue::number() const { return load_number(type_, encoded_.data()); }

std::optional<bool> GgufValue::boolean() const {
  return type_ == GgufType::Bool ? std::optional(load<uint8_t>(encoded_.data()) != 0) : std::nullopt;
}

std::optional<std::string_view> GgufValue::string() const {
  return type_ == GgufType::String ? std::optional(load_string(encoded_.data())) : std::nullopt;
}

GgufType GgufValue::element_type() const {
  MR_ASSERT(is_array());
  return static_cast<GgufType>(load<uint32_t>(encoded_.data()));
}

uint64_t GgufValue::size() const {
  MR_ASSERT(is_array());
  return load<uint64_t>(encoded_.data() + sizeof(uint32_t));
}

std::span<const std::byte> GgufValue::payload() const { return encoded_.subspan(kArrayHeader); }

std::vector<GgufValue> GgufValue::elements() const {
  const GgufType element = element_type();
  std::vector<GgufValue> values;
  values.reserve(size());
  const std::byte* at = payload().data();
  for (uint64_t i = 0; i < size(); ++i) {
    const size_t bytes = encoded_bytes(element, at);
    values.emplace_back(element, std::span(at, bytes));
    at += bytes;
  }
  return values;
}

std::optional<std::vector<std::string_view>> GgufValue::strings() const {
  if (!is_array() || element_type() != GgufType::String) return std::nullopt;
  std::vector<std::string_view> values;
  values.reserve(size());
  const std::byte* at = payload().data();
  for (uint64_t i = 0; i < size(); ++i) {
    values.push_back(load_string(at));
    at += sizeof(uint64_t) + values.back().size();
  }
  return values;
}

std::optional<std::vector<double>> GgufValue::numbers() const {
  if (!is_array() || scalar_bytes(element_type()) == 0) return std::nullopt;
  std::vector<double> values(size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = load_number(element_type(), payload().data() + i * scalar_bytes(element_type()));
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  return values;
}

std::optional<std::vector<int64_t>> GgufValue::integers() const {
  if (!is_array() || scalar_bytes(element_type()) == 0) return std::nullopt;
  std::vector<int64_t> values(size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = load_integer(element_type(), payload().data() + i * scalar_bytes(element_type()));
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  return values;
}

}  // namespace millrace
