// The CUDA half of hardware/. A build without MILLRACE_CUDA links a stub (cuda_absent.cpp) that refuses to open a
// device.
#pragma once

#include <memory>

#include "hardware/device.h"

namespace millrace {

std::unique_ptr<Device> open_cuda_device(int index, bool measure);  // requires an empty cuda_problem()
int current_cuda_device();                                          // of the calling thread; -1: no usable driver
void check_launch(int status, const char* doing);  // throws unless `status`, a cudaError_t, is cudaSuccess

}  // namespace millrace
