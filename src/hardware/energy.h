// Energy that devices count themselves.
#pragma once

#include <optional>

namespace millrace {

class Device;

// Joules of all processor packages since some moment, by the kernel's power capping interface (RAPL). Nullopt: the
// processor has no such counter, or this user may not read it.
std::optional<double> read_package_joules(const char* root = "");

// The power that a device draws while it works, averaged over windows of a tenth of a second and more.
class PowerMeter {
 public:
  explicit PowerMeter(const Device& device) : device_(device) {}

  // Nullopt: the device does not count. `now`: seconds on any clock.
  std::optional<double> watts(double now);

 private:
  const Device& device_;
  double since_ = 0;
  std::optional<double> joules_;  // at since_
  std::optional<double> watts_;
  bool counts_ = true;
};

}  // namespace millrace
