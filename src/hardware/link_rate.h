// The rate of copies from pinned host memory to a device (PCIe), which layers in host memory depend on.
#pragma once

#include "hardware/device.h"

namespace millrace {

struct Link {
  double gbs = 20;  // copies from pinned memory to the device
  // Of a recorded step: until the CPU knows that the device has written its rows, and the device goes on.
  double hand_over_us = 20;
  double launch_us = 0;  // of one kernel that is not part of a recorded step
};

// The best of a few runs, some milliseconds in all. The guesses if the device lacks memory for a measurement.
Link measure_link(Device& device);

}  // namespace millrace
