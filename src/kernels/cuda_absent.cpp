// A build without CUDA has no kernels for it; hardware/ never opens such a device there.
#include "kernels/kernel_set.h"

namespace millrace {

const KernelSet& cuda_kernels() {
  static const KernelSet none;
  return none;
}

}  // namespace millrace
