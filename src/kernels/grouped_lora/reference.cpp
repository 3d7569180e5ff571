#include <fmt/format.h>

#include "kernels/grouped_lora/grouped_lora.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

// Each pair is a call of the plain op with one row.
class ReferenceGroupedLora final : public Kernel<GroupedLoraOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.pairs() * (p.n + p.k) * 16);  // of rank 16
  }

  void run(const Args& a, const Executor& executor) const override {
    const int64_t bytes = info(a.format).bytes;
    for (int64_t pair = 0; pair < a.routing.pairs(); ++pair) {
      const int64_t expert = a.routing.chosen[pair] - a.routing.first;
      const LoraWeights* found = a.of_pair(pair);
      if (found == nullptr || expert < 0 || expert >= a.routing.groups) continue;
      LoraWeights own = *found;
      const int64_t place = own.place_of(expert);
      if (place < 0) continue;
      own.a += place * own.a_step * bytes;
      own.b += place * own.b_step * bytes;
      constexpr int32_t kOnly = 0;
      LoraOp::reference()->run({.format = a.format,
                                .x = a.x.rows_from(a.x_row(pair), 1),
                                .parts = a.parts,
                                .scale = a.sum ? a.routing.weights[pair] : 1,
                                .adapters = &kOnly,
                                .table = &own,
                                .y = a.y.rows_from(a.sum ? pair / a.routing.per_row : pair, 1)},
                               executor);
    }
  }
};

}  // namespace

const Kernel<GroupedLoraOp>* GroupedLoraOp::reference() {
  static const ReferenceGroupedLora kernel;
  return &kernel;
}

std::string to_string(const GroupedLoraOp::Problem& p) {
  return fmt::format("grouped_lora {}{} n={} k={} parts={} rows={} per_row={}", name(p.format), p.sum ? " sum" : "",
                     p.n, p.k, p.parts, p.rows, p.per_row);
}

}  // namespace millrace
