#include "engine/adapter_matrices.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tensor/dequantize.h"

namespace millrace {

Floats read_matrix(const TensorInfo& tensor, const std::string& origin) {
  const int64_t cols = tensor.shape.back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  const size_t each = row_bytes(*tensor.dtype, cols);
  Floats values(static_cast<size_t>(rows * cols));
  std::vector<uint64_t> aligned(each / sizeof(uint64_t) + 1);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(aligned.data(), tensor.data + static_cast<size_t>(row) * each, each);
    dequantize_row(*tensor.dtype, reinterpret_cast<const std::byte*>(aligned.data()), &values[size_t(row * cols)],
                   cols);
  }
  for (const float value : values) {
    if (!std::isfinite(value)) fail(ErrorKind::BadFile, "{}: '{}' has values that are not finite", origin, tensor.name);
  }
  return values;
}

void scale(Floats& matrix, double by, const std::string& module, const std::string& origin) {
  for (float& value : matrix) {
    value = static_cast<float>(value * by);
    if (!std::isfinite(value))
      fail(ErrorKind::BadFile, "{}: '{}' times its scale {} is not finite", origin, module, by);
  }
}

Floats transposed(const Floats& matrix, int64_t rows, int64_t cols) {
  Floats result(matrix.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) result[size_t(c * rows + r)] = matrix[size_t(r * cols + c)];
  }
  return result;
}

}  // namespace millrace
