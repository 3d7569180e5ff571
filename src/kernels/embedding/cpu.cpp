// Embedding rows are few and small, so the scalar dequantizer serves all quantized formats. Speed comes from sharing
// rows among threads and from vectorized conversion of the plain formats.
#include <algorithm>

#include "kernels/embedding/embedding.h"
#include "kernels/row_work.h"
#include "kernels/simd/targets.h"
#include "tensor/dequantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kPiece = 256;  // a multiple of every format's block size

void dequantize(DType dtype, const std::byte* packed, float* out, int64_t n) {
  if (dtype == DType::F32) return widen_row<DType::F32>(packed, n, out);
  if (dtype == DType::F16) return widen_row<DType::F16>(packed, n, out);
  if (dtype == DType::BF16) return widen_row<DType::BF16>(packed, n, out);
  dequantize_row(dtype, packed, out, n);
}

void write_scaled(const float* piece, float scale, bool accumulate, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32Vec base = accumulate ? load(out + i) : hn::Zero(kF32);
    store(hn::Add(base, hn::Mul(load(piece + i), broadcast(scale))), out + i);
  }
  for (; i < n; ++i) out[i] = (accumulate ? out[i] : 0.0f) + piece[i] * scale;
}

void embed_row(const EmbeddingOp::Args& args, int64_t row) {
  const int64_t n = args.table.cols;
  const std::byte* packed = args.table.row(args.id(row));
  float* out = args.out.row<float>(row);
  alignas(64) float piece[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = std::min(kPiece, n - begin);
    dequantize(args.table.dtype, packed + row_bytes(args.table.dtype, begin), piece, count);
    write_scaled(piece, args.scale, args.accumulate, out + begin, count);
  }
}

class SimdEmbedding : public Kernel<EmbeddingOp> {
 public:
  std::string_view name() const override { return "simd_" MR_TARGET_NAME; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.isa.has(kTargetIsa); }
  double estimate_us(const Problem& p, const Hardware& hardware) const override {
    return row_work_us(p.rows * p.cols, is_quantized(p.format) ? 40 : 12, hardware);
  }

  void run(const Args& args, const Executor& executor) const override {
    for_rows(executor, args.out.rows, args.table.cols * 2, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) embed_row(args, row);
    });
  }
};

}  // namespace

const Kernel<EmbeddingOp>* embedding_kernel() {
  static const SimdEmbedding kernel;
  return &kernel;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

KernelList<EmbeddingOp> EmbeddingOp::cpu() { return {MR_EACH_TARGET(embedding_kernel), EmbeddingOp::reference()}; }

}  // namespace millrace
#endif
