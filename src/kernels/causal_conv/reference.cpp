#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/causal_conv/causal_conv.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

class ReferenceCausalConv final : public Kernel<CausalConvOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.rows * p.channels * p.taps);
  }

  void run(const Args& a, const Executor&) const override {
    for (const SequenceSlice& slice : a.sequences) convolve(a, slice);
  }

 private:
  static void convolve(const Args& a, const SequenceSlice& slice) {
    const int64_t channels = a.x.cols, kept = a.taps - 1;
    auto* state = reinterpret_cast<float*>(a.state + static_cast<size_t>(slice.slot) * a.stride);
    // Input `t` of this slice; negative: of the state.
    const auto input = [&](int64_t t, int64_t c) {
      return t < 0 ? state[(kept + t) * channels + c] : a.x.row<float>(slice.first_row + t)[c];
    };
    for (int64_t t = 0; t < slice.rows; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = a.bias != nullptr ? a.bias[c] : 0;
        for (int j = 0; j < a.taps; ++j) sum += double(a.weight[c * a.taps + j]) * input(t - kept + j, c);
        if (a.silu) sum /= 1 + std::exp(-sum);
        a.out.row<float>(slice.first_row + t)[c] = static_cast<float>(sum);
      }
    }
    // Oldest first: a place is read before it is overwritten.
    for (int64_t i = 0; i < kept; ++i) {
      for (int64_t c = 0; c < channels; ++c) state[i * channels + c] = input(slice.rows - kept + i, c);
    }
  }
};

}  // namespace

const Kernel<CausalConvOp>* CausalConvOp::reference() {
  static const ReferenceCausalConv kernel;
  return &kernel;
}

std::string to_string(const CausalConvOp::Problem& p) {
  return fmt::format("causal_conv {}x{} taps={}", p.rows, p.channels, p.taps);
}

}  // namespace millrace
