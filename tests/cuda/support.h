// What the tests on a GPU share: the device, copies of test matrices in its memory, and a skip where there is none.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "hardware/device.h"
#include "kernels/support.h"
#include "tensor/arena.h"
#include "tensor/half.h"

namespace millrace {

inline Device& gpu() {
  static const std::unique_ptr<Device> device = open_device({DeviceChoice::Cuda});
  return *device;
}

inline Executor on_gpu(std::byte* workspace = nullptr) { return {nullptr, workspace, gpu().queue()}; }

// Bytes in the GPU's memory, from the host and back.
class GpuBytes {
 public:
  explicit GpuBytes(size_t bytes) : arena_("test", std::max<size_t>(bytes, 1), gpu().memory()), bytes_(bytes) {
    data_ = arena_.take(std::max<size_t>(bytes, 1));
  }
  GpuBytes(const void* host, size_t bytes) : GpuBytes(bytes) {
    if (bytes > 0) gpu().memory().write(data_, static_cast<const std::byte*>(host), bytes);
  }
  template <class T>
  explicit GpuBytes(const std::vector<T>& host) : GpuBytes(host.data(), host.size() * sizeof(T)) {}

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::vector<std::byte> read() const {
    gpu().finish();
    std::vector<std::byte> host(bytes_);
    if (bytes_ > 0) gpu().memory().read(host.data(), data_, bytes_);
    return host;
  }

 private:
  Arena arena_;
  size_t bytes_;
  std::byte* data_;
};

inline float rounded(float value, DType dtype) {
  if (dtype == DType::BF16) return bf16_to_f32(f32_to_bf16(value));
  return dtype == DType::F16 ? f16_to_f32(f32_to_f16(value)) : value;
}

// A test matrix in the GPU's memory, in any plain dtype, with its spare columns.
class GpuCopy {
 public:
  GpuCopy(TestMatrix& host, DType dtype = DType::F32) : view_(host.view()), dtype_(dtype), bytes_(encode(view_, dtype)) {}

  Matrix view() const {
    const auto element = static_cast<size_t>(info(dtype_).bytes);
    return {dtype_, view_.rows, view_.cols, view_.stride, bytes_.data() + kSpare * element};
  }
  // What is there now, spare columns too.
  void read(TestMatrix& host) const {
    const auto bytes = bytes_.read();
    float* to = host.view().row<float>(0) - kSpare;
    for (int64_t i = 0; i < view_.rows * view_.stride; ++i) to[i] = decode(bytes, dtype_, i);
  }

 private:
  static constexpr int64_t kSpare = 3;  // TestMatrix's
  static GpuBytes encode(const Matrix& m, DType dtype) {
    const float* from = m.row<float>(0) - kSpare;
    std::vector<std::byte> host(static_cast<size_t>(m.rows * m.stride) * static_cast<size_t>(info(dtype).bytes));
    for (int64_t i = 0; i < m.rows * m.stride; ++i) {
      if (dtype == DType::F32) {
        reinterpret_cast<float*>(host.data())[i] = from[i];
      } else {
        reinterpret_cast<uint16_t*>(host.data())[i] = dtype == DType::F16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
      }
    }
    return GpuBytes(host);
  }
  static float decode(const std::vector<std::byte>& bytes, DType dtype, int64_t i) {
    if (dtype == DType::F32) return reinterpret_cast<const float*>(bytes.data())[i];
    const uint16_t bits = reinterpret_cast<const uint16_t*>(bytes.data())[i];
    return dtype == DType::F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }

  Matrix view_;
  DType dtype_;
  GpuBytes bytes_;
};

inline void round_to(TestMatrix& m, DType dtype) {
  const Matrix view = m.view();
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) m.at(r, c) = rounded(m.at(r, c), dtype);
  }
}

// One rounding to the output's format, in the norm of the result.
inline double rounding_of(DType dtype) { return dtype == DType::F32 ? 0 : dtype == DType::F16 ? 0x1p-11 : 0x1p-8; }

inline constexpr DType kPlainTypes[] = {DType::F32, DType::BF16, DType::F16};

}  // namespace millrace
