// Shared by the CUDA benchmarks: device buffers, random data, checked calls, cold timing inside a graph.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "recorded.cuh"

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

// Median time of one of `launches` launches in a recorded graph, in microseconds. Negative when a launch fails.
template <class Launch>
double time_cold(int launches, int repeats, cudaStream_t stream, Launch launch) {
  Recorded recorded(launches, stream, launch);
  if (!recorded.good()) return -1;
  for (int i = 0; i < repeats + 1; ++i) recorded.replay();
  return recorded.us();
}

}  // namespace millrace
