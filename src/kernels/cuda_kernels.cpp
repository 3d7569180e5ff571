#include "kernels/kernel_set.h"

namespace millrace {

const KernelSet& cuda_kernels() {
  static const KernelSet set = [] {
    KernelSet all;
    all.layouts = LinearOp::cuda_layouts();
    AllOps::for_each([&]<class Op>(std::type_identity<Op>) { all.of<Op>() = Op::cuda(); });
    return all;
  }();
  return set;
}

}  // namespace millrace
