// A GPU's own memory, and pinned host memory.
#pragma once

#include <cuda_runtime.h>

#include "tensor/memory.h"

namespace millrace {

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(int device) : device_(device) {}
  std::byte* allocate(const std::string& purpose, size_t bytes) override;
  void release(std::byte* data, size_t bytes) noexcept override;
  void write(std::byte* to, const std::byte* from, size_t bytes) override;
  void read(std::byte* to, const std::byte* from, size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void clear(std::byte* to, size_t bytes) override;
  void copy_ranges(std::byte* to, const std::byte* from, size_t bytes, size_t stride, size_t count) override;
  void copy_in_order_of(cudaStream_t queue) { queue_ = queue; }

 private:
  int device_;
  cudaStream_t queue_ = nullptr;
};

class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(int device) : device_(device) {}
  std::byte* allocate(const std::string& purpose, size_t bytes) override;
  void release(std::byte* data, size_t bytes) noexcept override;
  void write(std::byte* to, const std::byte* from, size_t bytes) override { host_memory().write(to, from, bytes); }
  void read(std::byte* to, const std::byte* from, size_t bytes) override { host_memory().read(to, from, bytes); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { host_memory().copy(to, from, bytes); }
  void clear(std::byte* to, size_t bytes) override { host_memory().clear(to, bytes); }

 private:
  int device_;
};

}  // namespace millrace
