// Runs the kernels of norm, rope and kv_write on a few rows at a time in one parallel region.
#include <algorithm>
#include <cstring>

#include "kernels/kv_write/kv_write.h"
#include "kernels/latent_write/latent_write.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

constexpr int64_t kRowsOfAPiece = 8;

class CpuLatentWrite final : public Kernel<LatentWriteOp> {
 public:
  CpuLatentWrite() : norm_(NormOp::cpu()), rope_(RopeOp::cpu()), kv_write_(KvWriteOp::cpu()) {}

  std::string_view name() const override { return "cpu"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    return hardware.device == DeviceKind::Cpu && is_kv_dtype(p.kv, p.latent_dim + p.rotary_dim);
  }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * (2 * p.latent_dim + (p.heads + 1) * p.rotary_dim), 10, hardware);
  }

  void run(const Args& args, const Executor& executor) const override {
    const KvLayer& kv = args.kv;
    const Kernels kernels{
        first_that_runs(norm_, {NormKind::Rms, 1, kv.value_dim}, *executor.hardware),
        first_that_runs(rope_, {}, *executor.hardware),
        first_that_runs(kv_write_, {kv.dtype, 1, kv.key_dim, kv.value_dim, 1, true}, *executor.hardware)};
    for_rows(executor, args.row.rows, args.row.cols + args.heads * args.rotary_dim(), [&](int64_t begin, int64_t end) {
      for (const SequenceSlice& sequence : args.sequences) {
        const int64_t first = std::max<int64_t>(begin, sequence.first_row);
        const int64_t last = std::min<int64_t>(end, sequence.first_row + sequence.rows);
        for (int64_t row = first; row < last; row += kRowsOfAPiece)
          run_rows(args, sequence, row, std::min(kRowsOfAPiece, last - row), kernels);
      }
    });
  }

 private:
  struct Kernels {
    const Kernel<NormOp>& norm;
    const Kernel<RopeOp>& rope;
    const Kernel<KvWriteOp>& write;
  };

  static void run_rows(const Args& a, const SequenceSlice& sequence, int64_t row, int64_t rows, const Kernels& with) {
    const int latent = a.kv.value_dim, rotary = a.rotary_dim(), plain = a.plain_dim();
    const Matrix angles = a.angles.rows_from(row, rows);
    const Matrix part = a.row.rows_from(row, rows), c = part.columns(0, latent);
    with.norm.run({NormKind::Rms, c, c, a.norm, nullptr, a.epsilon}, {});
    with.rope.run({a.style, part.columns(latent, rotary), angles, 1, rotary, rotary}, {});
    SequenceSlice slice = sequence;
    slice.past += static_cast<int32_t>(row) - sequence.first_row;
    slice.first_row = static_cast<int32_t>(row);
    slice.rows = static_cast<int32_t>(rows);
    with.write.run({a.row, {}, a.kv, {&slice, 1}, {}}, {});
    // RoPE rotates the beginning of each head. A view that begins at the first rotary part makes that the end.
    const Matrix q = a.q.rows_from(row, rows);
    with.rope.run({a.style, q.columns(plain, q.cols - plain), angles, a.heads, plain + rotary, rotary}, {});
    for (int64_t i = 0; i < rows; ++i) {
      const float* from = q.row<float>(i) + plain;
      float* to = a.absorbed.row<float>(row + i) + latent;
      for (int head = 0; head < a.heads; ++head, from += plain + rotary, to += latent + rotary)
        std::memcpy(to, from, static_cast<size_t>(rotary) * sizeof(float));
      for (int head = 0; head < a.heads && a.plain.cols > 0; ++head)
        std::copy_n(q.row<float>(i) + head * (plain + rotary), plain, a.plain.row<float>(row + i) + head * plain);
    }
  }

  const KernelList<NormOp> norm_;
  const KernelList<RopeOp> rope_;
  const KernelList<KvWriteOp> kv_write_;
};

}  // namespace

KernelList<LatentWriteOp> LatentWriteOp::cpu() {
  static const CpuLatentWrite kernel;
  return {&kernel, reference()};
}

}  // namespace millrace
