// The CUDA half of hardware/: built where MILLRACE_CUDA is on, a stub that says so elsewhere.
#pragma once

#include <memory>

#include "hardware/device.h"

namespace millrace {

std::unique_ptr<Device> open_cuda_device(bool measure);  // only where cuda_problem() is empty
void check_launch(int status, const char* doing);        // what a launch returned (cudaError_t); throws where it failed

}  // namespace millrace
