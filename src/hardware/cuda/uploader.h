// Copies to the GPU from a ring of pinned buffers.
#pragma once

#include <cuda_runtime_api.h>

#include <array>

#include "hardware/device.h"
#include "tensor/arena.h"

namespace millrace {

class CudaUploader final : public Uploader {
 public:
  CudaUploader(int device, Memory& memory, Memory& pinned, cudaStream_t stream);
  ~CudaUploader() override;

  size_t slot_bytes() const override { return kSlotBytes; }
  std::byte* slot() override;
  void send(std::byte* to, size_t bytes) override;
  std::byte* scratch() override { return scratch_; }
  void* queue() const override { return stream_; }

 private:
  static constexpr size_t kSlotBytes = 32u << 20;
  static constexpr size_t kSlots = 4;  // the host fills one while others are copied
  int device_;
  cudaStream_t stream_;
  Arena pinned_, placed_;
  std::byte *data_, *scratch_;
  std::array<cudaEvent_t, kSlots> sent_{};
  size_t current_ = 0;
};

}  // namespace millrace
