// Time stamps of the blocks of a kernel, for bench/cuda/trace/timeline.sh. Compiles to nothing without MILLRACE_STAMPS.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace millrace {

enum Stamp { kStarted, kAsked, kWaited, kMultiplied, kMet, kStored, kClockNs, kClockNsHigh, kMultiprocessor, kLanded };

#ifdef MILLRACE_STAMPS
// Events of a block and, from kLanded on, arrival times of its memory requests, in cycles of its multiprocessor.
struct Stamps {
  static constexpr int kEach = 256;
  uint32_t* first = nullptr;

  __device__ static unsigned block() { return blockIdx.y * gridDim.x + blockIdx.x; }
  __device__ void mark(int event) const {
    if (first != nullptr) first[block() * kEach + event] = static_cast<uint32_t>(clock64());
  }
  __device__ void start() const {
    if (first == nullptr || threadIdx.x != 0) return;
    uint64_t ns;
    uint32_t sm;
    asm volatile("mov.u64 %0, %%globaltimer;\nmov.u32 %1, %%smid;" : "=l"(ns), "=r"(sm));
    mark(kStarted);
    first[block() * kEach + kClockNs] = static_cast<uint32_t>(ns);
    first[block() * kEach + kClockNsHigh] = static_cast<uint32_t>(ns >> 32);
    first[block() * kEach + kMultiprocessor] = sm;
  }
  __device__ void mark_first(int event) const {
    if (threadIdx.x == 0) mark(event);
  }
};
Stamps stamps_of_launch(unsigned blocks);  // defined by the tracing program
#else
struct Stamps {
  __device__ void mark(int) const {}
  __device__ void start() const {}
  __device__ void mark_first(int) const {}
};
inline Stamps stamps_of_launch(unsigned) { return {}; }
#endif

}  // namespace millrace
