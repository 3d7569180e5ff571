#include "kernels/attention/cuda/occupancy.h"

#include <cuda_runtime.h>

namespace millrace {
namespace {

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) return 0;
  return value;
}

}  // namespace

int resident_blocks(const void* kernel, int threads, int shared_bytes) {
  if (shared_bytes > device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return 0;
  int per_sm = 0;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, static_cast<size_t>(shared_bytes)) !=
          cudaSuccess) {
    cudaGetLastError();  // a kernel that was not built for this device is no error of the next call
    return 0;
  }
  return per_sm * device_attribute(cudaDevAttrMultiProcessorCount);
}

int device_capability() {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) * 10 + device_attribute(cudaDevAttrComputeCapabilityMinor);
}

}  // namespace millrace
