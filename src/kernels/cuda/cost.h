// Cost of a simple GPU kernel: one launch, plus its bytes at a fraction of the bandwidth.
#pragma once

#include "kernels/kernel.h"

namespace millrace {

inline double gpu_us(double bytes, const Hardware& hardware, double part_of_bandwidth = 0.5) {
  return hardware.ceilings.region_us + bytes / (part_of_bandwidth * hardware.ceilings.read_gbs) * 1e-3;
}

inline bool is_gpu(const Hardware& hardware) { return hardware.device == DeviceKind::Cuda; }

}  // namespace millrace
