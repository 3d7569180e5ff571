#include <fmt/format.h>

#include "kernels/rope/rope.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

void rotate(float& a, float& b, float cosine, float sine) {
  const double x = a, y = b;
  a = static_cast<float>(x * cosine - y * sine);
  b = static_cast<float>(y * cosine + x * sine);
}

class ReferenceRope : public Kernel<RopeOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.rows * p.heads * p.rotary_dim);
  }

  void run(const Args& args, const Executor&) const override {
    const int half = args.rotary_dim / 2;
    for (int64_t row = 0; row < args.x.rows; ++row) {
      const float* cosines = args.angles.row<float>(row);
      for (int head = 0; head < args.heads; ++head) {
        float* x = args.x.row<float>(row) + static_cast<int64_t>(head) * args.head_dim;
        for (int i = 0; i < half; ++i) {
          const bool halves = args.style == RopeStyle::Halves;
          rotate(x[halves ? i : 2 * i], x[halves ? i + half : 2 * i + 1], cosines[i], cosines[half + i]);
        }
      }
    }
  }
};

}  // namespace

const Kernel<RopeOp>* RopeOp::reference() {
  static const ReferenceRope kernel;
  return &kernel;
}

std::string to_string(const RopeOp::Problem& p) {
  return fmt::format("rope {} rows={} heads={} head_dim={} rotary_dim={}",
                     p.style == RopeStyle::Halves ? "halves" : "interleaved", p.rows, p.heads, p.head_dim,
                     p.rotary_dim);
}

}  // namespace millrace
