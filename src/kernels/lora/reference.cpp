#include <fmt/format.h>

#include <vector>

#include "kernels/lora/lora.h"
#include "kernels/row_work.h"
#include "tensor/half.h"

namespace millrace {
namespace {

float element(DType format, const std::byte* data, int64_t i) {
  if (format == DType::F32) return reinterpret_cast<const float*>(data)[i];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(data)[i];
  return format == DType::F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

class ReferenceLora final : public Kernel<LoraOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.rows * (p.n + p.k) * 16);  // of rank 16
  }

  void run(const Args& a, const Executor&) const override {
    for (int64_t row = 0; row < a.y.rows; ++row) {
      const LoraWeights* w = a.of_row(row);
      if (w == nullptr) continue;
      for (int p = 0; p < w->parts; ++p) {
        const LoraWeights::Part& part = w->part[p];
        for (int32_t j = 0; j < part.rank; ++j) {
          const double inner = a.scale * shrunk(a, *w, row, part.first + j);
          for (int32_t c = 0; c < part.cols; ++c) {
            a.y.row<float>(row)[part.column_of(c)] +=
                static_cast<float>(inner * element(a.format, w->b, part.at + int64_t{j} * part.cols + c));
          }
        }
      }
    }
  }

 private:
  static double shrunk(const Args& a, const LoraWeights& w, int64_t row, int64_t j) {
    if (a.x.cols == 0) return element(a.format, w.a, int64_t{a.id(row)} * w.rank + j);
    double sum = 0;
    for (int64_t i = 0; i < a.x.cols; ++i) sum += a.x.row<float>(row)[i] * element(a.format, w.a, j * a.x.cols + i);
    return sum;
  }
};

}  // namespace

const Kernel<LoraOp>* LoraOp::reference() {
  static const ReferenceLora kernel;
  return &kernel;
}

std::string to_string(const LoraOp::Problem& p) {
  return fmt::format("lora {}{} n={} k={} parts={} rows={}{}", name(p.format),
                     p.embedding     ? " embedding"
                     : p.alternating ? " alternating"
                                     : "",
                     p.n, p.k, p.parts, p.rows, p.invariant ? " invariant" : "");
}

}  // namespace millrace
