// The rate of copies from pinned host memory to a device (PCIe), which layers in host memory depend on.
#pragma once

#include "hardware/device.h"

namespace millrace {

// In GB/s: the best of a few copies, some milliseconds in all. The guess if the device lacks memory for a measurement.
double measure_link_gbs(Device& device);

}  // namespace millrace
