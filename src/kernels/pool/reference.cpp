#include <fmt/format.h>

#include <algorithm>

#include "kernels/pool/pool.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

// Reads each row once, so it is also the CPU's kernel.
class ReferencePool final : public Kernel<PoolOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.cols, 4, hardware);
  }

  void run(const Args& a, const Executor& executor) const override {
    const auto sequences = static_cast<int64_t>(a.sequences.size());
    if (sequences == 0) return;
    const int64_t elements = a.x.rows * a.x.cols / sequences;
    for_rows(executor, sequences, elements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) pool(a, a.sequences[static_cast<size_t>(i)], a.out.row<float>(i));
    });
  }

 private:
  static void pool(const Args& a, const SequenceSlice& slice, float* out) {
    const int64_t first = slice.first_row, last = first + slice.rows - 1;
    const float* one = a.x.row<float>(a.kind == PoolKind::Last ? last : first);
    std::copy_n(one, a.x.cols, out);
    if (a.kind != PoolKind::Mean) return;
    for (int64_t row = first + 1; row <= last; ++row) {
      const float* x = a.x.row<float>(row);
      for (int64_t i = 0; i < a.x.cols; ++i) out[i] += x[i];
    }
    for (int64_t i = 0; i < a.x.cols; ++i) out[i] /= static_cast<float>(slice.rows);
  }
};

}  // namespace

const Kernel<PoolOp>* PoolOp::reference() {
  static const ReferencePool kernel;
  return &kernel;
}

KernelList<PoolOp> PoolOp::cpu() { return {reference()}; }

std::string to_string(const PoolOp::Problem& p) {
  constexpr std::string_view kNames[] = {"first", "mean", "last"};
  return fmt::format("pool {} {}x{}", kNames[static_cast<size_t>(p.kind)], p.rows, p.cols);
}

}  // namespace millrace
