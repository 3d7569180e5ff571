#include "formats/tensor_encoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"
#include "tensor/quantize_weighted.h"

namespace millrace {
namespace {

bool all_below(float limit, const float* row, int64_t count) {
  return std::all_of(row, row + count, [limit](float v) { return std::abs(v) < limit; });
}

// The importance of the columns of one of `rows` rows, which belong to slices of the same size.
const float* importance_of(int64_t row, int64_t rows, int64_t cols, std::span<const float> importance) {
  if (importance.empty()) return nullptr;
  const int64_t slices = std::ssize(importance) / cols;
  return importance.data() + row / (rows / slices) * cols;
}

}  // namespace

void TensorEncoder::write(std::span<const WeightView> pieces, const GgufTensor& out, GgufWriter& writer,
                          TensorChange change, std::span<const float> importance) {
  constexpr int64_t kElementsAtOnce = 1 << 20;
  const auto stays = [&](const WeightView& view) { return view.dtype == out.dtype || view.rows * view.cols == 0; };
  if (change == TensorChange() && std::all_of(pieces.begin(), pieces.end(), stays)) {
    for (const WeightView& view : pieces) writer.write({view.data, view.bytes()});
    return;
  }
  const int64_t cols = pieces.front().cols;
  rows_.clear();
  for (const WeightView& view : pieces) {
    MR_ASSERT(view.cols == cols);
    for (int64_t i = 0; i < view.rows; ++i) rows_.push_back({view.dtype, view.row(i)});
  }
  // Pieces of single values, such as a bias in another order, form one row of the output.
  const int64_t whole = std::max<int64_t>(1, out.shape.back() / cols);
  const auto at_once = static_cast<size_t>(std::max<int64_t>(kElementsAtOnce / (cols * whole), 1) * whole);
  for (size_t first = 0; first < rows_.size(); first += at_once) {
    encode({first, std::min(at_once, rows_.size() - first), cols}, out, change, importance);
    writer.write(encoded_);
  }
}

void TensorEncoder::encode(const Chunk& chunk, const GgufTensor& out, const TensorChange& change,
                           std::span<const float> importance) {
  const auto rows = std::span(rows_).subspan(chunk.first, chunk.count);
  const int64_t cols = chunk.cols;
  const int64_t total = std::ssize(rows) * cols, width = std::max(cols, out.shape.back());
  const size_t bytes = row_bytes(out.dtype, width);
  numbers_.resize(static_cast<size_t>(total));
  encoded_.resize(static_cast<size_t>(total / width) * bytes);
  threads_.parallel_for(std::ssize(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = numbers_.data() + i * cols;
      dequantize_row(rows[static_cast<size_t>(i)].dtype, rows[static_cast<size_t>(i)].data, row, cols);
      for (const float factor : change.factors) {
        for (int64_t j = 0; factor != 1 && j < cols; ++j) row[j] *= factor;
      }
      for (int64_t j = 0; change.add != 0 && j < cols; ++j) row[j] += change.add;
      if (change.map != nullptr) std::transform(row, row + cols, row, change.map);
    }
  });
  const int64_t all = std::ssize(rows_) * cols / width;
  std::atomic<bool> finite = true, fits = true;
  threads_.parallel_for(total / width, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = numbers_.data() + i * width;
      std::byte* encoded = encoded_.data() + static_cast<size_t>(i) * bytes;
      if (!all_below(std::numeric_limits<float>::infinity(), row, width)) finite = false;
      const bool is_usual = all_below(kLargestF16, row, width);
      const int64_t at = static_cast<int64_t>(chunk.first) * cols / width + i;
      quantize_row(out.dtype, row, encoded, width, importance_of(at, all, width, importance));
      if (is_usual) continue;
      // Detects overflow: values or scales stored as f16 may have become infinite.
      dequantize_row(out.dtype, encoded, row, width);
      if (!all_below(std::numeric_limits<float>::infinity(), row, width)) fits = false;
    }
  });
  if (!finite) fail(ErrorKind::BadFile, "{}: tensor '{}' holds numbers that are not finite", origin_, out.name);
  if (!fits) {
    fail(ErrorKind::Unsupported, "{}: tensor '{}' holds numbers that are too large for {}", origin_, out.name,
         name(out.dtype));
  }
}

}  // namespace millrace
