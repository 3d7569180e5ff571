// Shared by the CUDA benchmarks: checked calls, device buffers, random data, timing inside a graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/device.cuh"
#include "recorded.cuh"

namespace millrace::bench {

class Buffer {
 public:
  explicit Buffer(size_t bytes = 0) : bytes_(bytes) {
    if (bytes > 0) CHECK(cudaMalloc(&data_, bytes));
  }
  template <class T>
  explicit Buffer(const std::vector<T>& host) : Buffer(host.size() * sizeof(T)) {
    if (bytes_ > 0) CHECK(cudaMemcpy(data_, host.data(), bytes_, cudaMemcpyHostToDevice));
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() { cudaFree(data_); }

  void fill(int byte) { CHECK(cudaMemset(data_, byte, bytes_)); }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  template <class T>
  std::vector<T> host() const {
    std::vector<T> out(bytes_ / sizeof(T));
    CHECK(cudaMemcpy(out.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

__host__ __device__ inline uint32_t hash(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((x ^ (x >> 31)) >> 16);
}
// Approximately normal: the sum of four uniform numbers.
__host__ __device__ inline float noise(uint64_t seed, uint64_t index) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(hash(seed * 0x9e3779b97f4a7c15ull + index * 4 + i) & 0xffff);
  return (sum / 65536 - 2) * 1.7320508f;
}

template <class T>
__global__ void fill_noise(T* out, int64_t count, uint64_t seed, float scale) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    out[i] = from_float<T>(noise(seed, static_cast<uint64_t>(i)) * scale);
  }
}
inline void fill_random(void* data, DType dtype, int64_t count, uint64_t seed, float scale = 1) {
  with_type(dtype, [&](auto type) {
    fill_noise<<<1024, 256>>>(static_cast<decltype(type)*>(data), count, seed, scale);
    return 0;
  });
  CHECK(cudaGetLastError());
}

inline int plain_bytes(DType dtype) { return dtype == DType::F32 ? 4 : 2; }

// Median microseconds of one launch(i): records `count` launches and replays them many times. i lets inputs rotate.
inline double time_in_graph(int count, const std::function<void(CudaStream, int)>& launch) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int i = 0; i < 2; ++i) launch(stream, i);
  CHECK(cudaStreamSynchronize(stream));
  Recorded recorded(count, stream, [&](int i, cudaStream_t on) {
    launch(on, i);
    return true;
  });
  float spent = 0;
  for (int i = 0; i < 40 && (spent < 60 || i < 5); ++i) spent += recorded.replay();
  CHECK(cudaStreamDestroy(stream));
  return recorded.us();
}

}  // namespace millrace::bench
