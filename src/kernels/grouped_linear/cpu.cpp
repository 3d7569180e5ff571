#include <deque>

#include "kernels/grouped_linear/experts.h"

namespace millrace {

KernelList<GroupedLinearOp> GroupedLinearOp::cpu() {
  static const ExpertsKernel fast(Precision::Fast), exact(Precision::Exact);
  static const std::deque<ExpertsKernel> of_one_kernel = [] {
    std::deque<ExpertsKernel> all;
    for (const auto* kernel : piece_kernels()) {
      if (kernel->limits().any_rows) all.emplace_back(*kernel, fast);
    }
    return all;
  }();
  KernelList<GroupedLinearOp> all{&fast, &exact};
  for (const auto& kernel : of_one_kernel) all.push_back(&kernel);
  all.push_back(reference());
  return all;
}

}  // namespace millrace
