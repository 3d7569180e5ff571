#include "hardware/link_rate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/log.h"
#include "hardware/copy_queue.h"
#include "tensor/arena.h"

namespace millrace {
namespace {

// Seconds of the fastest of a few runs.
double best_seconds(Device& device, FunctionRef<void()> work) {
  constexpr int kRuns = 6;
  double best = 1;
  for (int i = 0; i < kRuns; ++i) {
    device.finish();
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::min(best, std::max(seconds.count(), 1e-9));
  }
  return best;
}

// Null if the device cannot record.
std::unique_ptr<Recording> record_read(Device& device, std::byte* to, const std::byte* from, size_t bytes) {
  if (!device.begin_recording()) return nullptr;
  device.enqueue_read(to, from, bytes);
  return device.end_recording();
}

}  // namespace

Link measure_link(Device& device) {
  if (device.is_host()) return {};  // for tests: the same everywhere
  constexpr size_t kBytes = size_t{32} << 20, kFew = 4096;
  constexpr int kLaunches = 200, kHandOvers = 20;
  try {
    device.use_on_this_thread();
    Arena from("measuring the link", kBytes, device.staging()), to("measuring the link", kBytes, device.memory());
    std::byte *source = from.take(kBytes), *target = to.take(kBytes);
    std::fill_n(source, kBytes, std::byte{1});
    const auto queue = new_copy_queue(device);
    const double copy = best_seconds(device, [&] {
      device.enqueue_write(target, source, kBytes);
      device.finish();
    });
    // The routing goes to the host; kernels read and write the rows.
    const auto part = record_read(device, source, target, kFew);
    const double hand_overs = best_seconds(device, [&] {
      for (int i = 0; i < kHandOvers; ++i) {
        part != nullptr ? part->replay() : device.enqueue_read(source, target, kFew);
        queue->mark();
        queue->wait();
      }
    });
    const double launches = best_seconds(device, [&] {
      for (int i = 0; i < kLaunches; ++i) device.clear(target, kFew);
      device.finish();
    });
    return {double(kBytes) / copy * 1e-9, 1e6 * hand_overs / kHandOvers, 1e6 * launches / kLaunches};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::OutOfMemory) throw;
    log().warn("the rate of the link to the GPU is a guess: {}", error.what());
    return {};
  }
}

}  // namespace millrace
