#include "kernels/kernel_set.h"

namespace millrace {

const KernelSet& cpu_kernels() {
  static const KernelSet set = [] {
    KernelSet all;
    all.layouts = LinearOp::cpu_layouts();
    AllOps::for_each([&]<class Op>(std::type_identity<Op>) { all.of<Op>() = Op::cpu(); });
    return all;
  }();
  return set;
}

}  // namespace millrace
