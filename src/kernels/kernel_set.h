// The kernels of one back-end, op by op.
#pragma once

#include <tuple>
#include <vector>

#include "kernels/op_list.h"

namespace millrace {

struct KernelSet {
  std::vector<const LinearLayout*> layouts;

  template <class Op>
  KernelList<Op>& of() {
    return std::get<KernelList<Op>>(lists_);
  }
  template <class Op>
  const KernelList<Op>& of() const {
    return std::get<KernelList<Op>>(lists_);
  }

 private:
  AllOps::Each<KernelList> lists_;
};

const KernelSet& cpu_kernels();
const KernelSet& cuda_kernels();  // empty in a build without CUDA

}  // namespace millrace
