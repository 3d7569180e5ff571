// Writes tensors to a GGUF file in another number format, some rows at a time: a few MB of memory for a model of any
// size.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/gguf_writer.h"
#include "tensor/matrix.h"

namespace millrace {

// What happens to the values of a tensor on their way.
struct TensorChange {
  float add = 0;
  std::array<float, 2> factors = {1, 1};  // two, because converters round after each
  float (*map)(float) = nullptr;
  friend bool operator==(const TensorChange&, const TensorChange&) = default;
};

class TensorEncoder {
 public:
  TensorEncoder(std::string origin, ThreadPool& threads) : origin_(std::move(origin)), threads_(threads) {}

  // Writes the rows of the pieces, which are stacked, as the tensor `out`. Throws BadFile for values that are not
  // finite, Unsupported for values that the format cannot hold.
  // `importance`: of the columns, for each outermost slice of the tensor (imatrix.h); empty: none is known.
  void write(std::span<const WeightView> pieces, const GgufTensor& out, GgufWriter& writer, TensorChange change = {},
             std::span<const float> importance = {});

 private:
  struct Row {
    DType dtype;
    const std::byte* data;
  };
  // Encodes rows_[first, first + count).
  struct Chunk {
    size_t first, count;
    int64_t cols;
  };
  void encode(const Chunk& chunk, const GgufTensor& out, const TensorChange& change, std::span<const float> importance);

  std::string origin_;
  ThreadPool& threads_;
  std::vector<Row> rows_;
  std::vector<float> numbers_;
  std::vector<std::byte> encoded_;
};

}  // namespace millrace
