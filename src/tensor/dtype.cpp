#include "tensor/dtype.h"

#include <strings.h>

#include <algorithm>
#include <array>

#include "tensor/kv_dtype.h"

namespace millrace {
namespace {

// In the order of the enum; the last one is for KV caches only.
constexpr std::array<DTypeInfo, 18> kTypes{{
    {DType::F32, "F32", 0, 1, 4},
    {DType::F16, "F16", 1, 1, 2},
    {DType::BF16, "BF16", 30, 1, 2},
    {DType::Q8_0, "Q8_0", 8, 32, 34},
    {DType::Q4_0, "Q4_0", 2, 32, 18},
    {DType::Q4_1, "Q4_1", 3, 32, 20},
    {DType::Q5_0, "Q5_0", 6, 32, 22},
    {DType::Q5_1, "Q5_1", 7, 32, 24},
    {DType::Q2_K, "Q2_K", 10, 256, 84},
    {DType::Q3_K, "Q3_K", 11, 256, 110},
    {DType::Q4_K, "Q4_K", 12, 256, 144},
    {DType::Q5_K, "Q5_K", 13, 256, 176},
    {DType::Q6_K, "Q6_K", 14, 256, 210},
    {DType::IQ4_NL, "IQ4_NL", 20, 32, 18},
    {DType::IQ4_XS, "IQ4_XS", 23, 256, 136},
    {DType::MXFP4, "MXFP4", 39, 32, 17},
    {DType::F8_E4M3, "F8_E4M3", -1, 32, 36},
    {kFp8, "FP8", -1, 1, 1},
}};

static_assert([] {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<size_t>(kTypes[i].dtype) != i) return false;
  }
  return true;
}());

bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::span<const DTypeInfo> all_dtypes() { return std::span(kTypes).first(kTypes.size() - 1); }

const DTypeInfo& info(DType dtype) { return kTypes[static_cast<size_t>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& t : all_dtypes()) {
    if (same_name(t.name, name)) return t.dtype;
  }
  return std::nullopt;
}

std::optional<DType> kv_dtype_from_name(std::string_view name) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q8_0, kFp8}) {
    if (same_name(info(dtype).name, name)) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_ggml(uint32_t id) {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const DTypeInfo& t) { return t.ggml_id == int64_t{id}; });
  return found == kTypes.end() ? std::nullopt : std::optional(found->dtype);
}

}  // namespace millrace
