#include <fmt/format.h>

#include "kernels/head_routing/head_routing.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

class ReferenceHeadRouting final : public Kernel<HeadRoutingOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override { return scalar_work_us(p.rows * p.heads); }

  void run(const Args& a, const Executor&) const override {
    const Routing& routing = a.routing;
    const int64_t heads = routing.groups, rows = routing.rows / heads;
    for (int64_t head = 0; head < heads; ++head) {
      routing.offsets[head] = static_cast<int32_t>(head * rows);
      for (int64_t row = 0; row < rows; ++row) {
        routing.chosen[row * heads + head] = static_cast<int32_t>(head);
        routing.order[head * rows + row] = static_cast<int32_t>(row * heads + head);
      }
    }
    routing.offsets[heads] = static_cast<int32_t>(heads * rows);
  }
};

}  // namespace

const Kernel<HeadRoutingOp>* HeadRoutingOp::reference() {
  static const ReferenceHeadRouting kernel;
  return &kernel;
}

KernelList<HeadRoutingOp> HeadRoutingOp::cpu() { return {reference()}; }

std::string to_string(const HeadRoutingOp::Problem& p) {
  return fmt::format("head_routing rows={} heads={}", p.rows, p.heads);
}

}  // namespace millrace
