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

// Never lowers the limit: another thread may be about to launch with the old one.
bool allow_shared(const void* kernel, int bytes) {
  cudaFuncAttributes now = {};
  if (cudaFuncGetAttributes(&now, kernel) != cudaSuccess) return false;
  return now.maxDynamicSharedSizeBytes >= bytes ||
         cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) == cudaSuccess;
}

}  // namespace

int resident_blocks(const void* kernel, int threads, int shared_bytes) {
  if (shared_bytes > device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return 0;
  int per_sm = 0;
  if (!allow_shared(kernel, shared_bytes) ||
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared) !=
          cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel, threads, static_cast<size_t>(shared_bytes)) !=
          cudaSuccess) {
    cudaGetLastError();  // clears the error of a kernel that was not built for this device
    return 0;
  }
  return per_sm * multiprocessor_count();
}

int resident_clusters(const void* kernel, int threads, int shared_bytes, int ranks) {
  constexpr int kPortable = 8;
  if (ranks > kPortable &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(ranks), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(ranks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return clusters;
}

int multiprocessor_count() { return device_attribute(cudaDevAttrMultiProcessorCount); }

int device_capability() {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) * 10 + device_attribute(cudaDevAttrComputeCapabilityMinor);
}

}  // namespace millrace
