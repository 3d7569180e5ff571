#include <fmt/format.h>

#include <algorithm>

#include "kernels/embedding/embedding.h"
#include "kernels/row_work.h"
#include "tensor/dequantize.h"

namespace millrace {
namespace {

// A multiple of every format's block size.
constexpr int64_t kPiece = 256;

class ReferenceEmbedding : public Kernel<EmbeddingOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override { return scalar_work_us(p.rows * p.cols); }

  void run(const Args& args, const Executor&) const override {
    const int64_t n = args.table.cols;
    for (int64_t row = 0; row < args.out.rows; ++row) {
      const std::byte* packed = args.table.row(args.id(row));
      float* out = args.out.row<float>(row);
      for (int64_t begin = 0; begin < n; begin += kPiece) {
        const int64_t count = std::min(kPiece, n - begin);
        float piece[kPiece];
        dequantize_row(args.table.dtype, packed + row_bytes(args.table.dtype, begin), piece, count);
        for (int64_t i = 0; i < count; ++i) {
          out[begin + i] = (args.accumulate ? out[begin + i] : 0.0f) + piece[i] * args.scale;
        }
      }
    }
  }
};

}  // namespace

const Kernel<EmbeddingOp>* EmbeddingOp::reference() {
  static const ReferenceEmbedding kernel;
  return &kernel;
}

std::string to_string(const EmbeddingOp::Problem& p) {
  return fmt::format("embedding {} {}x{}", name(p.format), p.rows, p.cols);
}

}  // namespace millrace
