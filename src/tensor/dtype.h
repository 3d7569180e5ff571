// Number formats: plain elements, the quantized blocks of GGUF, and block-scaled FP8 of Hugging Face folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace millrace {

enum class DType : uint8_t {
  F32,
  F16,
  BF16,
  Q8_0,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS,
  MXFP4,
  F8_E4M3,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // as GGUF tools spell it: "F16", "Q4_K"
  int ggml_id;            // the type's number in a GGUF file; -1: GGUF has no such type
  int block;              // elements per block; 1 for plain elements
  int bytes;              // bytes per block
};

std::span<const DTypeInfo> all_dtypes();
const DTypeInfo& info(DType dtype);
inline std::string_view name(DType dtype) { return info(dtype).name; }
inline bool is_quantized(DType dtype) { return dtype > DType::BF16; }
std::optional<DType> dtype_from_name(std::string_view name);  // any case: "q4_k", "Q4_K"
std::optional<DType> dtype_from_ggml(uint32_t id);

// Bytes of a row of n elements; n must be a multiple of the block.
inline size_t row_bytes(DType dtype, int64_t n) {
  const DTypeInfo& i = info(dtype);
  return static_cast<size_t>(n / i.block) * static_cast<size_t>(i.bytes);
}

}  // namespace millrace
