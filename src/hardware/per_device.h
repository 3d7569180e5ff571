// One T per thread and CUDA device. Library handles and occupancy figures belong to the device that was current when
// they were made, and using them on another device fails or gives wrong plans.
#pragma once

#include <map>

#include "hardware/cuda_device.h"

namespace millrace {

template <class T>
T& per_cuda_device() {
  thread_local std::map<int, T> all;
  return all[current_cuda_device()];
}

}  // namespace millrace
