#include <algorithm>
#include <functional>

#include "hardware/cuda/ceilings.h"
#include "hardware/cuda/check.h"
#include "hardware/cuda/cublaslt.h"
#include "hardware/cuda/memory.h"
#include "tensor/arena.h"

namespace millrace {
namespace {

constexpr int kThreads = 512;
constexpr int kFmaRounds = 4096, kFmaChains = 8;

// Streams through the buffer. The store never happens (count >= 0), but keeps the compiler from dropping the loads.
__global__ void read_all(const uint4* data, int64_t count, uint32_t* never) {
  uint32_t sum = 0;
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    const uint4 a = data[i], b = data[i + stride], c = data[i + 2 * stride], d = data[i + 3 * stride];
    sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) + (d.x ^ d.y ^ d.z ^ d.w);
  }
  for (; i < count; i += stride) sum += data[i].x;
  if (sum == 0x12345678u && count < 0) *never = sum;
}

// Random small numbers in bf16 and in f16. Constant data would draw less power and run faster than real work.
__global__ void fill_random(uint32_t* data, int64_t count) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x) {
    uint32_t bits = static_cast<uint32_t>(i) * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    data[i] = ((bits ^ bits >> 13) & 0x83ff83ffu) | 0x38003800u;
  }
}

__global__ void multiply_add(float* never, float a, float b) {
  float sums[kFmaChains];
#pragma unroll
  for (int i = 0; i < kFmaChains; ++i) sums[i] = float(threadIdx.x + i);
  for (int round = 0; round < kFmaRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kFmaChains; ++i) sums[i] = fmaf(sums[i], a, b);
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < kFmaChains; ++i) total += sums[i];
  if (total == 1.2345f) *never = total;
}

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaEventCreate(&start_), "making an event");
    check_cuda(cudaEventCreate(&end_), "making an event");
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }
  // Time of the fastest run, in microseconds.
  double best_us(const std::function<void()>& work) {
    double best = 1e30;
    for (int i = 0; i < kRuns; ++i) {
      check_cuda(cudaEventRecord(start_, stream_), "measuring");
      work();
      check_cuda(cudaEventRecord(end_, stream_), "measuring");
      check_cuda(cudaEventSynchronize(end_), "measuring");
      float ms = 0;
      check_cuda(cudaEventElapsedTime(&ms, start_, end_), "measuring");
      if (i > 0) best = std::min(best, 1e3 * double(ms));  // the first run warms up
    }
    return best;
  }

 private:
  static constexpr int kRuns = 6;
  cudaStream_t stream_;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

double gemm_gflops(DType dtype, std::byte* data, Stopwatch& watch, cudaStream_t stream) {
  constexpr int64_t kSide = 8192;
  CublasLtGemm gemm;
  const CublasLtProblem problem{dtype, dtype, kSide, kSide, kSide, kSide, kSide, false};
  if (!gemm.can_run(problem)) return 0;
  const size_t bytes = 2 * kSide * kSide;
  const double us = watch.best_us([&] {
    gemm.run(problem, data, data + bytes, data + 2 * bytes, {data + 3 * bytes, CublasLtGemm::kWorkspaceBytes}, stream);
  });
  return 2.0 * kSide * kSide * kSide / us * 1e-3;
}

}  // namespace

Ceilings guess_gpu_ceilings(const Hardware& h) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    cudaDeviceGetAttribute(&value, which, h.cuda_index);
    return double(value);
  };
  const double clocks = h.cores * attribute(cudaDevAttrClockRate) * 1e-6;  // sum over all multiprocessors, in GHz
  const bool datacentre = h.architecture == 80 || h.architecture == 90 || h.architecture == 100;
  const double bf16_per_clock = h.architecture >= 90 && datacentre ? 4096 : datacentre ? 2048 : 1024;
  Ceilings c;
  // Double data rate times bus width in bits; about 90 % of it is reachable.
  c.read_gbs = std::max(
      100.0, 0.9 * 2 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8 * 1e-6);
  c.cache_gbs = 2.5 * c.read_gbs;
  c.f32_gflops = clocks * (h.architecture == 80 ? 128 : 256);
  c.bf16_gflops = c.f16_gflops = 0.75 * clocks * bf16_per_clock;
  c.int8_gops = 2 * c.bf16_gflops;
  c.region_us = 2;  // from the end of one kernel to the first loads of the next
  return c;
}

Ceilings measure_gpu_ceilings(const Hardware& h, cudaStream_t stream) {
  constexpr size_t kBuffer = size_t(1) << 30;
  Ceilings c = guess_gpu_ceilings(h);
  CudaMemory memory(h.cuda_index);
  Arena arena("measuring the GPU", kBuffer, memory);
  std::byte* data = arena.take(kBuffer);
  fill_random<<<h.cores * 4, kThreads, 0, stream>>>(reinterpret_cast<uint32_t*>(data), int64_t(kBuffer / 4));
  Stopwatch watch(stream);
  const auto read_gbs = [&](size_t bytes, int times) {
    const double us = watch.best_us([&] {
      for (int i = 0; i < times; ++i) {
        read_all<<<h.cores * 4, kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(data), int64_t(bytes / 16),
                                                       reinterpret_cast<uint32_t*>(data));
      }
    });
    return double(bytes) * times / us * 1e-3;
  };
  c.read_gbs = read_gbs(kBuffer, 1);
  c.cache_gbs = std::max(c.read_gbs, read_gbs(size_t(h.l2_bytes) / 4, 20));
  const double fma_us = watch.best_us(
      [&] { multiply_add<<<h.cores * 4, kThreads, 0, stream>>>(reinterpret_cast<float*>(data), 0.999f, 0.001f); });
  c.f32_gflops = 2.0 * h.cores * 4 * kThreads * kFmaRounds * kFmaChains / fma_us * 1e-3;
  if (const double rate = gemm_gflops(DType::BF16, data, watch, stream); rate > 0) c.bf16_gflops = rate;
  if (const double rate = gemm_gflops(DType::F16, data, watch, stream); rate > 0) c.f16_gflops = rate;
  c.int8_gops = 2 * c.bf16_gflops;
  c.measured = true;
  return c;
}

}  // namespace millrace
