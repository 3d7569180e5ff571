// The layout of the file's own rows, read in place, and its kernels. They compute in f32, for conformance and for plain
// formats.
#pragma once

#include "kernels/kernel_set.h"
#include "kernels/linear/pieces.h"

namespace millrace {

const LinearLayout& rows_layout();

// A kernel that multiplies rows of weights with f32 rows of x.
class RowsKernel : public PieceKernel {
 public:
  void run(const Args& args, const Executor& executor) const override;

  PieceLimits limits() const override { return {}; }
  size_t x_bytes(int64_t m, int64_t k) const override;
  void prepare(const Args& args, int64_t m_begin, int64_t m_end, std::byte* x) const override;
  void multiply(const Args& args, const std::byte* x, std::byte* scratch, const LinearPiece& piece) const override;

 protected:
  // Columns [n_begin, n_end) of y, for all rows of x. n_begin is a multiple of kStripRows, n_end too or the last one.
  virtual void multiply_rows(const Args& args, int64_t n_begin, int64_t n_end) const = 0;
};

// One kernel per instruction set, best first.
std::vector<const RowsKernel*> plain_linear_kernels();  // F32, F16, BF16: decode and small batches
std::vector<const RowsKernel*> exact_linear_kernels();  // every format, any number of rows

}  // namespace millrace
