// Checked calls, and launches recorded as a CUDA graph whose replays are timed.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

namespace millrace {

inline void check_call(int error, const char* call, const char* file, int line) {
  if (error == 0) return;
  std::printf("%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::fflush(stdout);
  std::exit(1);
}
#define CHECK(call) ::millrace::check_call(static_cast<int>(call), #call, __FILE__, __LINE__)

class Recorded {
 public:
  // launch(i, stream) returns success; it should rotate through data larger than the caches.
  template <class Launch>
  Recorded(int launches, cudaStream_t stream, Launch launch) : launches_(launches), stream_(stream) {
    cudaGraph_t graph = nullptr;
    bool good = true;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; ++i) good = launch(i, stream) && good;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (good && ended == cudaSuccess) {
      cudaGraphExec_t executable = nullptr;
      CHECK(cudaGraphInstantiate(&executable, graph, 0));
      graph_.reset(executable);
    } else {
      cudaGetLastError();
    }
    if (graph != nullptr) cudaGraphDestroy(graph);
  }

  bool good() const { return graph_ != nullptr; }
  // Returns milliseconds.
  float replay() {
    CHECK(cudaEventRecord(from_.get(), stream_));
    CHECK(cudaGraphLaunch(graph_.get(), stream_));
    CHECK(cudaEventRecord(to_.get(), stream_));
    CHECK(cudaEventSynchronize(to_.get()));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from_.get(), to_.get()));
    times_.push_back(ms);
    return ms;
  }
  // Median microseconds of a launch, without the first replay.
  double us() const {
    std::vector<float> sorted(times_.begin() + 1, times_.end());
    std::sort(sorted.begin(), sorted.end());
    return 1000.0 * static_cast<double>(sorted[sorted.size() / 2]) / launches_;
  }

 private:
  template <auto kDestroy>
  struct Destroy {
    template <class T>
    void operator()(T* handle) const {
      kDestroy(handle);
    }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy<cudaEventDestroy>>;
  static Event make_event() {
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreate(&event));
    return Event(event);
  }

  int launches_;
  cudaStream_t stream_;
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy<cudaGraphExecDestroy>> graph_;
  Event from_ = make_event(), to_ = make_event();
  std::vector<float> times_;
};

}  // namespace millrace
