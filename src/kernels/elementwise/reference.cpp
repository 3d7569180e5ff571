#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/elementwise/elementwise.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

class ReferenceElementwise : public Kernel<ElementwiseOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override { return scalar_work_us(p.rows * p.cols); }

  void run(const Args& args, const Executor&) const override {
    for (int64_t row = 0; row < args.out.rows; ++row) {
      const float* a = args.a.row<float>(args.kind == Elementwise::Gather ? args.ids[row] : row);
      const bool both = args.kind == Elementwise::Add || args.kind == Elementwise::Multiply ||
                        args.kind == Elementwise::ScaleBySigmoid;
      const float* b = both ? args.b.row<float>(row) : nullptr;
      float* out = args.out.row<float>(row);
      const double scale = row_factor(args, row);
      for (int64_t i = 0; i < args.out.cols; ++i) out[i] = combine(args, scale, a[i], b != nullptr ? b[i] : 0);
    }
  }

 private:
  static double row_factor(const Args& args, int64_t row) {
    if (args.kind == Elementwise::ScaleByPosition)
      return 1 + args.factor * std::log1p(static_cast<double>(args.ids[row] / args.period));
    if (args.kind == Elementwise::ScaleRowsBySigmoid) return 1 / (1 + std::exp(-double(*args.b.row<float>(row))));
    return args.factor;
  }
  static float combine(const Args& args, double scale, float a, float b) {
    switch (args.kind) {
      case Elementwise::Add:
        return a + b;
      case Elementwise::Multiply:
        return a * b;
      case Elementwise::Scale:
      case Elementwise::ScaleByPosition:
      case Elementwise::ScaleRowsBySigmoid:
        return static_cast<float>(a * scale);
      case Elementwise::ScaleBySigmoid:
        return static_cast<float>(a / (1 + std::exp(-double(b))));
      case Elementwise::Softcap:
        return static_cast<float>(args.factor * std::tanh(static_cast<double>(a) / args.factor));
      case Elementwise::Clamp:
        return std::min(std::max(a, -args.factor), args.factor);
      case Elementwise::Gather:
        return a;
    }
    return a;
  }
};

}  // namespace

const Kernel<ElementwiseOp>* ElementwiseOp::reference() {
  static const ReferenceElementwise kernel;
  return &kernel;
}

std::string to_string(const ElementwiseOp::Problem& p) {
  static constexpr std::string_view kNames[] = {
      "add",   "multiply",              "scale",           "softcap", "gather", "scale by position",
      "clamp", "scale rows by sigmoid", "scale by sigmoid"};
  return fmt::format("elementwise {} {}x{}", kNames[static_cast<int>(p.kind)], p.rows, p.cols);
}

}  // namespace millrace
