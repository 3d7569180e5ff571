#include "kernels/rope/angles.h"

#include <fmt/core.h>

#include <cmath>

#include "kernels/row_work.h"

namespace millrace {
namespace {

constexpr int64_t kElementsPerSine = 20;  // a sine costs about as much as touching 20 elements

// One kernel for all precisions: the C library's sines are exact to the last bits, and a step needs only a few
// thousand.
class RopeAngles final : public Kernel<RopeAnglesOp> {
 public:
  std::string_view name() const override { return "rows"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.rows * p.rotary_dim * kElementsPerSine);
  }

  void run(const Args& args, const Executor& executor) const override {
    const int64_t half = args.angles.cols / 2;
    for_rows(executor, args.angles.rows, 2 * half * kElementsPerSine, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* out = args.angles.row<float>(row);
        const auto position = static_cast<float>(args.positions[static_cast<size_t>(row)]);
        const bool is_long = args.long_from > 0 && args.horizons[static_cast<size_t>(row)] > args.long_from;
        const Args::Frequencies& frequencies = is_long ? args.extended : args.usual;
        for (int64_t i = 0; i < half; ++i) {
          const float angle = position * frequencies.inverse[i];
          out[i] = std::cos(angle) * frequencies.magnitude;
          out[half + i] = std::sin(angle) * frequencies.magnitude;
        }
      }
    });
  }
};

}  // namespace

std::string to_string(const RopeAnglesOp::Problem& p) { return fmt::format("rows={} rotary={}", p.rows, p.rotary_dim); }

KernelList<RopeAnglesOp> RopeAnglesOp::cpu() {
  static const RopeAngles kernel;
  return {&kernel};
}

}  // namespace millrace
