#include "hardware/cuda/memory.h"

#include "base/error.h"
#include "hardware/cuda/check.h"
#include "hardware/cuda_device.h"

namespace millrace {

void fail_cuda(cudaError_t status, const char* doing) {
  cudaGetLastError();  // clears errors that are not sticky
  if (status == cudaErrorMemoryAllocation) fail(ErrorKind::OutOfMemory, "GPU: out of memory while {}", doing);
  fail(ErrorKind::Io, "GPU: {} while {}", cudaGetErrorString(status), doing);
}

void check_launch(int status, const char* doing) { check_cuda(static_cast<cudaError_t>(status), doing); }

int current_cuda_device() {
  int index = -1;
  if (cudaGetDevice(&index) != cudaSuccess) cudaGetLastError();
  return index;
}

std::byte* CudaMemory::allocate(const std::string& purpose, size_t bytes) {
  use_cuda_device(device_);
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) != cudaSuccess) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail(ErrorKind::OutOfMemory, "GPU: cannot reserve {:.1f} MB for {}; {:.1f} MB are free", double(bytes) / 1e6,
         purpose, double(free) / 1e6);
  }
  return static_cast<std::byte*>(data);
}

void CudaMemory::release(std::byte* data, size_t) noexcept {
  cudaSetDevice(device_);
  cudaFree(data);
}

void CudaMemory::write(std::byte* to, const std::byte* from, size_t bytes) {
  use_cuda_device(device_);
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to it");
  // A copy from pageable memory returns once its bytes are staged, and our streams do not wait for the default stream.
  check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "copying to it");
}

void CudaMemory::read(std::byte* to, const std::byte* from, size_t bytes) {
  use_cuda_device(device_);
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copying from it");
}

void CudaMemory::copy(std::byte* to, const std::byte* from, size_t bytes) {
  use_cuda_device(device_);
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, queue_), "copying within it");
}

void CudaMemory::copy_ranges(std::byte* to, const std::byte* from, size_t bytes, size_t stride, size_t count) {
  constexpr size_t kLargestStride = (size_t{1} << 31) - 1;  // cudaDeviceProp::memPitch
  if (stride > kLargestStride) return Memory::copy_ranges(to, from, bytes, stride, count);
  use_cuda_device(device_);
  check_cuda(cudaMemcpy2DAsync(to, stride, from, stride, bytes, count, cudaMemcpyDeviceToDevice, queue_),
             "copying within it");
}

void CudaMemory::clear(std::byte* to, size_t bytes) {
  check_cuda(cudaMemsetAsync(to, 0, bytes, queue_), "clearing a part of it");
}

std::byte* PinnedMemory::allocate(const std::string& purpose, size_t bytes) {
  use_cuda_device(device_);
  void* data = nullptr;
  if (cudaMallocHost(&data, bytes) != cudaSuccess) {
    cudaGetLastError();
    fail(ErrorKind::OutOfMemory, "cannot pin {:.1f} MB of host memory for {}", double(bytes) / 1e6, purpose);
  }
  return static_cast<std::byte*>(data);
}

void PinnedMemory::release(std::byte* data, size_t) noexcept {
  cudaSetDevice(device_);
  cudaFreeHost(data);
}

}  // namespace millrace
