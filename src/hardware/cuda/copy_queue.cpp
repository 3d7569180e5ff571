#include "hardware/copy_queue.h"

#include <cuda_runtime.h>

#include <array>

#include "hardware/cuda/check.h"

namespace millrace {
namespace {

class Event {
 public:
  Event() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "marking a place in a step"); }
  void hold(cudaStream_t stream) { check_cuda(cudaStreamWaitEvent(stream, event_), "ordering two queues"); }
  void wait() { check_cuda(cudaEventSynchronize(event_), "running a step"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaCopyQueue final : public CopyQueue {
 public:
  explicit CudaCopyQueue(Device& device) : device_(device), queue_(static_cast<cudaStream_t>(device.queue())) {
    check_cuda(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "making a stream");
  }
  ~CudaCopyQueue() override {
    cudaSetDevice(device_.hardware().cuda_index);
    cudaStreamSynchronize(copies_);
    cudaStreamDestroy(copies_);
  }

  void mark() override {
    device_.use_on_this_thread();
    mark_.record(queue_);
  }
  void wait() override {
    device_.use_on_this_thread();
    mark_.wait();
    check_cuda(cudaGetLastError(), "launching a kernel");
  }
  void fill(int stage, std::byte* to, const std::byte* from, size_t bytes) override {
    device_.use_on_this_thread();
    free_[static_cast<size_t>(stage)].hold(copies_);
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copies_), "copying weights to it");
  }
  void use(int stage) override {
    device_.use_on_this_thread();
    full_[static_cast<size_t>(stage)].record(copies_);
    full_[static_cast<size_t>(stage)].hold(queue_);
  }
  void release(int stage) override {
    device_.use_on_this_thread();
    free_[static_cast<size_t>(stage)].record(queue_);
  }

 private:
  Device& device_;
  cudaStream_t queue_, copies_ = nullptr;
  Event mark_;
  std::array<Event, kStages> full_, free_;
};

}  // namespace

std::unique_ptr<CopyQueue> new_cuda_copy_queue(Device& device) {
  device.use_on_this_thread();
  return std::make_unique<CudaCopyQueue>(device);
}

}  // namespace millrace
