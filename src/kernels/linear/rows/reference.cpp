// The reference: dequantizes part of a row, multiplies and sums in double. Favours clarity over speed.
#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/linear/rows/rows.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

constexpr int64_t kStretch = 256;  // a multiple of every format's block size
constexpr int64_t kRowsOfX = 16;   // rows of x that share one dequantized part

void one_output_column(const LinearArgs& args, int64_t n, int64_t m_begin, int64_t m_end) {
  const LinearWeights& w = *args.weights;
  const std::byte* row = w.data + static_cast<size_t>(n) * row_bytes(w.format, w.k);
  double sums[kRowsOfX] = {};
  float weights[kStretch];
  for (int64_t k = 0; k < w.k; k += kStretch) {
    const int64_t count = std::min(kStretch, w.k - k);
    dequantize_row(w.format, row + row_bytes(w.format, k), weights, count);
    for (int64_t m = m_begin; m < m_end; ++m) {
      const float* x = args.x.row<float>(m) + k;
      for (int64_t i = 0; i < count; ++i) sums[m - m_begin] += double(x[i]) * double(weights[i]);
    }
  }
  for (int64_t m = m_begin; m < m_end; ++m) {
    float& y = args.y.row<float>(m)[n];
    y = static_cast<float>(sums[m - m_begin] + (args.bias != nullptr ? args.bias[n] : 0) + (args.accumulate ? y : 0));
  }
}

class ReferenceLinear : public LinearKernel {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return p.layout == rows_layout().name() && hardware.device == DeviceKind::Cpu;
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    constexpr double kUsPerWeight = 2e-3, kUsPerProduct = 1e-3;
    const double weights = double(p.n) * double(p.k);
    return weights * (kUsPerWeight + kUsPerProduct * double(p.m)) / hardware.threads;
  }

  void run(const Args& args, const Executor& executor) const override {
    executor.pool->parallel_for(args.weights->n, 8, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t m = 0; m < args.x.rows; m += kRowsOfX) {
          one_output_column(args, n, m, std::min(m + kRowsOfX, args.x.rows));
        }
      }
    });
  }
};

}  // namespace

const LinearKernel* LinearOp::reference() {
  static const ReferenceLinear kernel;
  return &kernel;
}

}  // namespace millrace
