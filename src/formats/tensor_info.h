// What a file says about one of its tensors, and where its bytes are.
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
  std::optional<DType> dtype;  // none: a number format that can be listed but not run
  std::string dtype_name;      // as the file's own tools spell it: "Q4_K", "I64"
  std::vector<int64_t> shape;  // row-major, outermost first: [rows, cols]
  const std::byte* data =
      nullptr;  // in the mapping, checked against the file's size; null where it is made when asked for
  size_t bytes = 0;
};

// The product of the dimensions; none when one is negative or the product does not fit.
std::optional<int64_t> element_count(std::span<const int64_t> shape);

std::string to_string(std::span<const int64_t> shape);  // "[4096, 11008]"

// Throws where two tensors of a file share bytes: an offset is damaged, and one would read the other's numbers.
void check_apart(std::span<const TensorInfo> tensors, const std::string& origin);

}  // namespace millrace
