// A tensor as its file describes it, and the location of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace millrace {

struct TensorInfo {
  std::string name;
  std::optional<DType> dtype;       // nullopt: a number format that can be listed but not run
  std::string dtype_name;           // as the format's own tools spell it: "Q4_K", "I64"
  std::vector<int64_t> shape;       // row-major, outermost first: [rows, cols]
  const std::byte* data = nullptr;  // in the mapped file, bounds checked; null: made on demand
  size_t bytes = 0;
};

// The product of the dimensions; nullopt if one is negative or the product overflows.
std::optional<int64_t> element_count(std::span<const int64_t> shape);

std::string to_string(std::span<const int64_t> shape);  // "[4096, 11008]"

// Throws if two tensors of a file overlap: then an offset is damaged, and one tensor would read the other's data.
void check_apart(std::span<const TensorInfo> tensors, const std::string& origin);

}  // namespace millrace
