#include <fmt/core.h>

#include "hardware/cuda/cublaslt.h"
#ifdef MILLRACE_CUDNN
#include "hardware/cuda/cudnn.h"
#endif
#include "hardware/device.h"

namespace millrace {
namespace {

std::string with_version(const char* name, size_t version) {
  if (version == 0) return fmt::format("no {}", name);
  return fmt::format("{} {}.{}.{}", name, version / 10000, version / 100 % 100, version % 100);
}

std::string cudnn_version() {
#ifdef MILLRACE_CUDNN
  return with_version("cuDNN", CudnnAttention::version());
#else
  return "built without cuDNN";
#endif
}

}  // namespace

std::string cuda_libraries() { return with_version("cuBLASLt", CublasLtGemm::version()) + ", " + cudnn_version(); }

}  // namespace millrace
