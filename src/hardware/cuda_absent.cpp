// Replaces hardware/cuda/ in builds without CUDA.
#include "base/error.h"
#include "hardware/copy_queue.h"
#include "hardware/cuda_device.h"

namespace millrace {

std::string cuda_problem(const DeviceChoice&) { return "this build has no CUDA back-end"; }

std::vector<std::string> cuda_devices() { return {}; }

std::string cuda_libraries() { return ""; }

std::unique_ptr<Device> open_cuda_device(int, bool) {
  fail(ErrorKind::Unsupported, "{}", cuda_problem(DeviceChoice::Cuda));
}

std::unique_ptr<CopyQueue> new_cuda_copy_queue(Device&) {
  fail(ErrorKind::Unsupported, "{}", cuda_problem(DeviceChoice::Cuda));
}

}  // namespace millrace
