// What the CUDA benchmarks share: device buffers, random data, checked calls, cold timing inside a graph.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                           \
  do {                                                                                        \
    const cudaError_t status_ = (call);                                                       \
    if (status_ != cudaSuccess) {                                                             \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
      std::exit(1);                                                                           \
    }                                                                                         \
  } while (false)

namespace millrace {

class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes) : bytes_(bytes) { CHECK(cudaMalloc(&data_, std::max<size_t>(bytes, 256))); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }
  template <class T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

__host__ __device__ inline uint32_t mix(uint64_t v) {
  v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
  v = (v ^ v >> 27) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>(v >> 32 ^ v);
}

// Uniform in (-1, 1) times `scale`.
__host__ __device__ inline float random_float(uint64_t seed, uint64_t i, float scale) {
  return (static_cast<float>(mix(seed * 0x9e3779b97f4a7c15ull + i) >> 8) * 0x1p-23f - 1.f) * scale;
}

template <class T>
__global__ void fill_random(T* out, size_t n, uint64_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
    out[i] = static_cast<T>(random_float(seed, i, scale));
  }
}

// Median time of one of `launches` launches in a captured graph, in microseconds; `launch(i, stream)` must rotate
// through data larger than the caches. Negative when a launch fails.
template <class Launch>
double time_cold(int launches, int repeats, cudaStream_t stream, Launch launch) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  bool good = true;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) good = launch(i, stream) && good;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (!good || ended != cudaSuccess) {
    cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
    return -1;
  }
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t from, to;
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  std::vector<float> times;
  for (int i = 0; i < repeats + 2; ++i) {
    CHECK(cudaEventRecord(from, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(to, stream));
    CHECK(cudaEventSynchronize(to));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from, to));
    if (i >= 2) times.push_back(ms);
  }
  CHECK(cudaEventDestroy(from));
  CHECK(cudaEventDestroy(to));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return 1000.0 * static_cast<double>(times[times.size() / 2]) / launches;
}

}  // namespace millrace
