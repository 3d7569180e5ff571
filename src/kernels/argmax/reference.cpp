#include <fmt/format.h>

#include <limits>

#include "kernels/argmax/argmax.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

class ReferenceArgmax : public Kernel<ArgmaxOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override { return scalar_work_us(p.rows * p.cols); }

  void run(const Args& args, const Executor& executor) const override {
    const auto skips = [&](int64_t row, int64_t token) {
      for (int i = 0; i < args.skipped; ++i) {
        if (args.known[i * args.logits.rows + row] == token) return true;
      }
      return false;
    };
    for_rows(executor, args.logits.rows, args.logits.cols, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* logits = args.logits.row<float>(row);
        float best = -std::numeric_limits<float>::infinity();
        args.ids[row] = -1;
        for (int64_t i = 0; i < args.logits.cols; ++i) {
          if (logits[i] > best && !skips(row, i)) best = logits[i], args.ids[row] = static_cast<int32_t>(i);
        }
        if (args.chosen != nullptr) args.chosen[row] = args.ids[row];
      }
    });
  }
};

}  // namespace

const Kernel<ArgmaxOp>* ArgmaxOp::reference() {
  static const ReferenceArgmax kernel;
  return &kernel;
}

KernelList<ArgmaxOp> ArgmaxOp::cpu() { return {ArgmaxOp::reference()}; }

std::string to_string(const ArgmaxOp::Problem& p) { return fmt::format("argmax {}x{}", p.rows, p.cols); }

}  // namespace millrace
