#include "hardware/energy.h"

#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>

#include "hardware/device.h"

namespace millrace {

// Without allocations, because steps call it.
std::optional<double> read_package_joules(const char* root) {
  std::optional<double> sum;
  for (int package = 0;; ++package) {
    char path[PATH_MAX], text[32] = {};
    std::snprintf(path, sizeof path, "%s/sys/class/powercap/intel-rapl:%d/energy_uj", root, package);
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return sum;
    const ssize_t bytes = ::read(file, text, sizeof text - 1);
    ::close(file);
    if (bytes <= 0) return sum;
    sum = sum.value_or(0) + std::strtod(text, nullptr) * 1e-6;
  }
}

std::optional<double> PowerMeter::watts(double now) {
  constexpr double kWindow = 0.1, kTooLong = 2;  // seconds; a longer window was idle for most of its time
  if (!counts_ || (joules_ && now - since_ < kWindow)) return watts_;
  const std::optional<double> joules = device_.joules();
  counts_ = joules.has_value();
  // A counter that wrapped around starts a new window.
  const bool usable = joules && joules_ && *joules >= *joules_ && now - since_ <= kTooLong;
  if (usable) watts_ = (*joules - *joules_) / (now - since_);
  joules_ = joules;
  since_ = now;
  return watts_;
}

}  // namespace millrace
