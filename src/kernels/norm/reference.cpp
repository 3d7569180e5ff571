#include <fmt/format.h>

#include <cmath>

#include "kernels/norm/norm.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

void norm_group(const NormOp::Args& args, const float* x, float* out, int64_t n, int64_t group) {
  const int64_t at = args.weights_per_group ? group * n : 0;  // where the weights of this group begin
  const bool second = args.second_weight != nullptr && group >= args.second_from;
  const float* weight = second ? args.second_weight : args.weight;
  double mean = 0, variance = 0;
  if (args.kind == NormKind::Layer) {
    for (int64_t i = 0; i < n; ++i) mean += x[i];
    mean /= static_cast<double>(n);
  }
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const double inverse = 1 / std::sqrt(variance / static_cast<double>(n) + args.epsilon);
  for (int64_t i = 0; i < n; ++i) {
    double y = (x[i] - mean) * inverse;
    if (weight != nullptr) y *= weight[at + i];
    if (args.bias != nullptr) y += args.bias[at + i];
    out[i] = static_cast<float>(args.accumulate ? out[i] + y : y);
  }
}

class ReferenceNorm : public Kernel<NormOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override { return scalar_work_us(p.rows * p.cols * 2); }

  void run(const Args& args, const Executor&) const override {
    const int64_t n = args.x.cols / args.groups;
    for (int64_t row = 0; row < args.x.rows; ++row) {
      for (int64_t i = 0; i < args.x.cols; i += n)
        norm_group(args, args.x.row<float>(row) + i, args.out.row<float>(row) + i, n, i / n);
    }
  }
};

}  // namespace

const Kernel<NormOp>* NormOp::reference() {
  static const ReferenceNorm kernel;
  return &kernel;
}

std::string to_string(const NormOp::Problem& p) {
  return fmt::format("norm {} {}x{} groups={}{}", p.kind == NormKind::Rms ? "rms" : "layer", p.rows, p.cols, p.groups,
                     p.accumulate ? " accumulate" : "");
}

}  // namespace millrace
