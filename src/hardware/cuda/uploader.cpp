#include "hardware/cuda/uploader.h"

#include "hardware/cuda/check.h"

namespace millrace {

CudaUploader::CudaUploader(int device, Memory& memory, Memory& pinned, cudaStream_t stream)
    : device_(device),
      stream_(stream),
      pinned_("uploads", kSlots * kSlotBytes, pinned),
      placed_("uploads", kSlotBytes, memory),
      data_(pinned_.take(kSlots * kSlotBytes)),
      scratch_(placed_.take(kSlotBytes)) {
  use_cuda_device(device_);
  for (auto& event : sent_) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
}

CudaUploader::~CudaUploader() {
  cudaSetDevice(device_);
  for (auto& event : sent_) {
    cudaEventSynchronize(event);
    cudaEventDestroy(event);
  }
  cudaStreamSynchronize(stream_);
}

std::byte* CudaUploader::slot() {
  use_cuda_device(device_);
  check_cuda(cudaEventSynchronize(sent_[current_]), "uploading");  // an event that was never recorded counts as done
  return data_ + current_ * kSlotBytes;
}

void CudaUploader::send(std::byte* to, size_t bytes) {
  use_cuda_device(device_);
  check_cuda(cudaMemcpyAsync(to, data_ + current_ * kSlotBytes, bytes, cudaMemcpyHostToDevice, stream_), "uploading");
  check_cuda(cudaEventRecord(sent_[current_], stream_), "uploading");
  current_ = (current_ + 1) % kSlots;
}

}  // namespace millrace
