#include "kernels/latent_prompt/head_matrix.h"

#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// Unit vectors that are multiplied at a time.
constexpr int64_t kTogether = 64;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
size_t floats(int64_t count) { return aligned(static_cast<size_t>(count) * sizeof(float)); }

size_t prepared_bytes(int64_t k) {
  size_t most = 0;
  for (const auto* kernel : piece_kernels()) most = std::max(most, kernel->x_bytes(kTogether, k));
  return aligned(most);
}

size_t scratch_bytes() {
  size_t most = 0;
  for (const auto* kernel : piece_kernels()) most = std::max(most, kernel->limits().scratch_bytes);
  return aligned(most);
}

}  // namespace

HeadMatrix::HeadMatrix(const GroupedWeights& w, const Hardware& hardware) : weights_(w) {
  if (w.layout->in_place(w.format, w.n, w.k)) return;
  ExpertChoice choice({w.format, w.layout->name(), Precision::Fast, w.n, w.k, 1, DType::F32, false}, hardware, nullptr);
  kernel_ = choice.of(kTogether);
  MR_ASSERT(kernel_ != nullptr);  // the layout was chosen for the kernels of this machine
}

size_t HeadMatrix::bytes(int64_t n, int64_t k) {
  return floats(kTogether * k) + floats(kTogether * round_up(n, kStripRows)) + prepared_bytes(k) + scratch_bytes();
}

void HeadMatrix::read(int64_t group, bool transposed, float* out, int64_t stride, std::byte* memory) const {
  const std::byte* matrix = weights_.data[static_cast<size_t>(group)];
  if (kernel_ == nullptr) return read_rows(matrix, transposed, out, stride, memory);
  read_packed(matrix, transposed, out, stride, memory);
}

void HeadMatrix::read_rows(const std::byte* row, bool transposed, float* out, int64_t stride, std::byte* memory) const {
  const int64_t k = weights_.k;
  auto* wide = reinterpret_cast<float*>(memory);
  for (int64_t i = 0; i < weights_.n; ++i, row += row_bytes(weights_.format, k)) {
    dequantize_row(weights_.format, row, transposed ? wide : out + i * stride, k);
    for (int64_t j = 0; transposed && j < k; ++j) out[j * stride + i] = wide[j];
  }
}

// The product with a unit vector is a column of the matrix. Kernels round unit vectors to themselves.
void HeadMatrix::read_packed(const std::byte* packed, bool transposed, float* out, int64_t stride,
                             std::byte* memory) const {
  const int64_t n = weights_.n, k = weights_.k, strips = ceil_div(n, kStripRows);
  const PieceLimits limits = kernel_->limits();
  const int64_t together = limits.strips_per_panel > 0 ? limits.strips_per_panel : strips;
  const LinearWeights matrix{weights_.format, n, k, weights_.layout, packed};
  auto* units = reinterpret_cast<float*>(memory);
  auto* products = reinterpret_cast<float*>(memory += floats(kTogether * k));
  std::byte* prepared = memory += floats(kTogether * round_up(n, kStripRows));
  std::byte* scratch = memory + prepared_bytes(k);
  LinearArgs args;
  args.x = {DType::F32, kTogether, k, k, reinterpret_cast<std::byte*>(units)};
  args.y = {DType::F32, kTogether, n, n, reinterpret_cast<std::byte*>(products)};
  args.weights = &matrix;
  for (int64_t first = 0; first < k; first += kTogether) {
    const int64_t count = std::min(kTogether, k - first);  // the other rows stay zero
    std::fill_n(units, kTogether * k, 0.0f);
    for (int64_t i = 0; i < count; ++i) units[i * k + first + i] = 1;
    for (int64_t row = 0; row < kTogether; row += limits.prepared_rows)
      kernel_->prepare(args, row, std::min(row + limits.prepared_rows, kTogether), prepared);
    for (int64_t strip = 0; strip < strips; strip += together) {
      const int64_t end = std::min(strip + together, strips);
      kernel_->multiply(args, prepared, scratch, {strip, end, 0, kTogether, end});
    }
    for (int64_t i = 0; i < count; ++i) {
      const float* column = products + i * n;
      if (transposed) {
        std::copy_n(column, n, out + (first + i) * stride);
      } else {
        for (int64_t j = 0; j < n; ++j) out[j * stride + first + i] = column[j];
      }
    }
  }
}

}  // namespace millrace
