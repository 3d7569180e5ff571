#include "formats/tensor_info.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace millrace {

std::optional<int64_t> element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t n : shape) {
    if (n < 0) return std::nullopt;
    empty = empty || n == 0;
    // Skip zeros: they must not hide an overflow of the other dimensions, which callers multiply separately.
    if (n != 0 && __builtin_mul_overflow(count, n, &count)) return std::nullopt;
  }
  return empty ? 0 : count;
}

std::string to_string(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void check_apart(std::span<const TensorInfo> tensors, const std::string& origin) {
  std::vector<const TensorInfo*> placed;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.bytes > 0) placed.push_back(&tensor);
  }
  std::sort(placed.begin(), placed.end(), [](const auto* a, const auto* b) { return a->data < b->data; });
  for (size_t i = 1; i < placed.size(); ++i) {
    if (placed[i - 1]->data + placed[i - 1]->bytes > placed[i]->data)
      fail(ErrorKind::BadFile, "{}: tensors '{}' and '{}' overlap", origin, placed[i - 1]->name, placed[i]->name);
  }
}

}  // namespace millrace
