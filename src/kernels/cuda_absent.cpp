// Replaces cuda_kernels.cpp in builds without CUDA, where hardware/ never opens a CUDA device.
#include "kernels/kernel_set.h"

namespace millrace {

const KernelSet& cuda_kernels() {
  static const KernelSet none;
  return none;
}

}  // namespace millrace
