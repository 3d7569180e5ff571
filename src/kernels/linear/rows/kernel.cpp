#include <algorithm>
#include <cstring>

#include "base/rounding.h"
#include "base/thread_pool.h"
#include "kernels/linear/rows/rows.h"

namespace millrace {

void RowsKernel::run(const Args& args, const Executor& executor) const {
  const int64_t strips = ceil_div(args.weights->n, kStripRows);
  const int64_t grain = std::max<int64_t>(1, strips / (8 * executor.pool->size()));
  executor.pool->parallel_for(strips, grain, [&](int64_t begin, int64_t end) {
    multiply_rows(args, begin * kStripRows, std::min(end * kStripRows, args.weights->n));
  });
}

size_t RowsKernel::x_bytes(int64_t m, int64_t k) const { return static_cast<size_t>(m * k) * sizeof(float); }

void RowsKernel::prepare(const Args& args, int64_t m_begin, int64_t m_end, std::byte* x) const {
  const size_t bytes = x_bytes(1, args.x.cols);
  for (int64_t m = m_begin; m < m_end; ++m) {
    std::memcpy(x + static_cast<size_t>(m) * bytes, args.x.row<float>(m), bytes);
  }
}

void RowsKernel::multiply(const Args& args, const std::byte* x, std::byte*, const LinearPiece& piece) const {
  const int64_t k = args.x.cols, rows = piece.m_end - piece.m_begin;
  Args own = args;
  own.x = Matrix{DType::F32, args.x.rows, k, k, const_cast<std::byte*>(x)}.rows_from(piece.m_begin, rows);
  own.y = args.y.rows_from(piece.m_begin, rows);
  multiply_rows(own, piece.strip_begin * kStripRows, std::min(piece.strip_end * kStripRows, args.weights->n));
}

}  // namespace millrace
