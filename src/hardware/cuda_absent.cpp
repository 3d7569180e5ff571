// What a build without CUDA says about it.
#include "base/error.h"
#include "hardware/cuda_device.h"

namespace millrace {

std::string cuda_problem() { return "this build has no CUDA back-end"; }

std::string cuda_libraries() { return ""; }

std::unique_ptr<Device> open_cuda_device(bool) { fail(ErrorKind::Unsupported, "{}", cuda_problem()); }

}  // namespace millrace
