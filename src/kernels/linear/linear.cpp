#include "kernels/linear/linear.h"

#include <fmt/format.h>

#include "base/error.h"

namespace millrace {

void LinearLayout::upload(std::span<const WeightView>, std::byte*, Uploader&, ThreadPool&) const {
  MR_ASSERT(!"this layout is the CPU's");
}

void LinearLayout::upload_gated(const WeightView&, const WeightView&, std::byte*, Uploader&, ThreadPool&) const {
  MR_ASSERT(!"this layout keeps gate and up apart");
}

int64_t bucket_rows(int64_t m) {
  if (m <= 8) return m;
  int64_t bucket = 8;  // 12, 16, 24, 32, 48, ...: powers of two and their midpoints
  while (bucket < m) bucket += (bucket & (bucket - 1)) == 0 ? bucket / 2 : bucket / 3;
  return bucket;
}

LinearProblem LinearProblem::bucketed() const {
  LinearProblem problem = *this;
  problem.m = bucket_rows(m);
  return problem;
}

std::string to_string(const LinearProblem& p) {
  return fmt::format("linear {} {} {}{}{} n={} k={} m={}", name(p.format), p.layout,
                     p.precision == Precision::Exact ? "exact" : "fast", p.gated ? " gated" : "",
                     p.x == DType::F32 ? "" : fmt::format(" x={}", name(p.x)), p.n, p.k, p.m);
}

}  // namespace millrace
