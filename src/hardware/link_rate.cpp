#include "hardware/link_rate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "tensor/arena.h"

namespace millrace {

double measure_link_gbs(Device& device) {
  constexpr size_t kBytes = size_t{32} << 20;
  constexpr int kRuns = 4;  // the first one warms up
  constexpr double kGuess = 20, kLeast = 0.01;
  try {
    device.use_on_this_thread();
    Arena from("measuring the link", kBytes, device.staging()), to("measuring the link", kBytes, device.memory());
    std::byte *source = from.take(kBytes), *target = to.take(kBytes);
    std::fill_n(source, kBytes, std::byte{1});
    double best = kLeast;
    for (int i = 0; i < kRuns; ++i) {
      device.finish();
      const auto start = std::chrono::steady_clock::now();
      device.enqueue_write(target, source, kBytes);
      device.finish();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      if (i > 0) best = std::max(best, double(kBytes) / std::max(seconds.count(), 1e-9) * 1e-9);
    }
    return best;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::OutOfMemory) throw;
    log().warn("the rate of the link to the GPU is a guess: {}", error.what());
    return kGuess;
  }
}

}  // namespace millrace
