// Runs rope and kv_write on a few rows at a time in one parallel region, so that k is still in the L1 cache when it is
// stored.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/kv_write/kv_write.h"
#include "kernels/rope_write/rope_write.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

constexpr int64_t kRowsTogether = 8;

class CpuRopeWrite final : public Kernel<RopeWriteOp> {
 public:
  CpuRopeWrite() : rope_(RopeOp::cpu()), kv_write_(KvWriteOp::cpu()) {}

  std::string_view name() const override { return "cpu"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.device == DeviceKind::Cpu && is_kv_dtype(p.kv, p.key_dim, p.value_dim);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    const int64_t rotated = int64_t{p.heads + p.kv_heads} * p.rotary_dim;
    const int64_t stored = int64_t{p.kv_heads} * (p.key_dim + (p.latent ? 0 : p.value_dim));
    return row_work_us(p.rows * (rotated + stored), 9, hardware);
  }

  void run(const Args& args, const Executor& executor) const override {
    const auto& rope = first_that_runs(rope_, {}, *executor.hardware);
    const KvLayer& kv = args.kv;
    const auto& write =
        first_that_runs(kv_write_, {kv.dtype, kv.kv_heads, kv.key_dim, kv.value_dim, 1, kv.latent}, *executor.hardware);
    const int64_t elements = args.q.cols + args.k.cols + (kv.latent ? 0 : args.v.cols);
    for_rows(executor, args.k.rows, elements, [&](int64_t begin, int64_t end) {
      for (const SequenceSlice& sequence : args.sequences) {
        const int64_t first = std::max<int64_t>(begin, sequence.first_row);
        const int64_t last = std::min<int64_t>(end, sequence.first_row + sequence.rows);
        for (int64_t row = first; row < last; row += kRowsTogether) {
          run_rows(args, sequence, row, std::min(kRowsTogether, last - row), rope, write);
        }
      }
    });
  }

 private:
  static void run_rows(const Args& a, const SequenceSlice& sequence, int64_t row, int64_t rows,
                       const Kernel<RopeOp>& rope, const Kernel<KvWriteOp>& write) {
    if (const auto rotary = static_cast<int>(a.angles.cols); rotary > 0) {
      const Matrix angles = a.angles.rows_from(row, rows);
      rope.run({a.style, a.q.rows_from(row, rows), angles, a.heads, a.kv.key_dim, rotary}, {});
      rope.run({a.style, a.k.rows_from(row, rows), angles, a.kv.kv_heads, a.kv.key_dim, rotary}, {});
    }
    SequenceSlice slice = sequence;
    slice.past += static_cast<int32_t>(row) - sequence.first_row;
    slice.first_row = static_cast<int32_t>(row);
    slice.rows = static_cast<int32_t>(rows);
    write.run({a.k, a.v, a.kv, {&slice, 1}, {}}, {});
  }

  const KernelList<RopeOp> rope_;
  const KernelList<KvWriteOp> kv_write_;
};

}  // namespace

KernelList<RopeWriteOp> RopeWriteOp::cpu() {
  static const CpuRopeWrite kernel;
  return {&kernel};
}

std::string to_string(const RopeWriteOp::Problem& p) {
  return fmt::format("rope_write {} {} rows={} heads={}/{} {} rotary_dim={}", name(p.kv),
                     p.style == RopeStyle::Halves ? "halves" : "interleaved", p.rows, p.heads, p.kv_heads,
                     row_sizes(p.key_dim, p.value_dim, p.latent), p.rotary_dim);
}

}  // namespace millrace
