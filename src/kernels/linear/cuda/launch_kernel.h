// Kernel launch with cluster, dynamic shared memory and programmatic dependent launch.
#pragma once

#include <cuda_runtime.h>

#include "kernels/linear/cuda/launch.h"

namespace millrace {

struct LaunchShape {
  dim3 grid;
  int threads = 0;
  int cluster = 1;  // along x
  size_t shared_bytes = 0;
  // Configures most of the multiprocessor's L1 as shared memory. Kernels overlap only if they agree on that split.
  bool most_shared = false;
};

template <class... Params, class... Args>
cudaError_t launch_kernel(void (*kernel)(Params...), const LaunchShape& shape, const CudaStep& step, Args... args) {
  constexpr size_t kAlwaysThere = 48 * 1024,
                   kFixed = 4 * 1024;  // static shared memory counts towards the limit as well
  if (shape.shared_bytes > kAlwaysThere - kFixed) {
    const cudaError_t raised =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (raised != cudaSuccess) return raised;
  }
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  if (step.overlap && shape.most_shared) {
    const cudaError_t split =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (split != cudaSuccess) return split;
  }
  if (step.overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = step.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

// Number of clusters of this shape that are resident on the device at once.
template <class... Params>
cudaError_t clusters_at_once(void (*kernel)(Params...), const LaunchShape& shape, int& clusters) {
  const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
  if (raised != cudaSuccess) return raised;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.cluster));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
}

}  // namespace millrace
