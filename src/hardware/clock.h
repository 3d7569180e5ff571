// The clock of all measurements.
#pragma once

#include <chrono>

namespace millrace {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace millrace
