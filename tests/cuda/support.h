// Shared by the GPU tests: the device, and copies of test matrices in its memory.
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

// One for all tests: pinning memory is slow.
inline Uploader& gpu_uploader() {
  static const std::unique_ptr<Uploader> uploader = gpu().new_uploader();
  return *uploader;
}

inline Executor on_gpu(std::byte* workspace = nullptr) {
  return {nullptr, workspace, gpu().queue(), &gpu().hardware()};
}

// Bytes in GPU memory, copied from the host and back.
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

// A test matrix in GPU memory, in any plain dtype. Rows start at multiples of 16 bytes, as activations do, and have
// spare columns of NaN on both sides.
class GpuCopy {
 public:
  GpuCopy(TestMatrix& host, DType dtype = DType::F32)
      : host_(host.view()), dtype_(dtype), stride_((host_.cols + 7) / 8 * 8 + 2 * kSpare), bytes_(encode()) {}

  Matrix view() const {
    return {dtype_, host_.rows, host_.cols, stride_, bytes_.data() + kSpare * static_cast<size_t>(info(dtype_).bytes)};
  }
  // Copies the current contents. A spare column that was overwritten is not NaN in `host`, either.
  void read(TestMatrix& host) const {
    const auto bytes = bytes_.read();
    const Matrix to = host.view();
    for (int64_t row = 0; row < to.rows; ++row) {
      for (int64_t column = 0; column < stride_; ++column) {
        const float value = decode(bytes, row * stride_ + column);
        const int64_t at = column - kSpare;
        if (at >= 0 && at < to.cols) {
          to.row<float>(row)[at] = value;
        } else if (!std::isnan(value)) {
          to.row<float>(row)[-1] = value;
        }
      }
    }
  }

 private:
  static constexpr int64_t kSpare = 8;
  GpuBytes encode() const {
    const auto element = static_cast<size_t>(info(dtype_).bytes);
    std::vector<std::byte> bytes(static_cast<size_t>(host_.rows * stride_) * element, std::byte{0xff});  // NaN
    for (int64_t row = 0; row < host_.rows; ++row) {
      for (int64_t column = 0; column < host_.cols; ++column) {
        const float value = host_.row<float>(row)[column];
        const uint16_t half = dtype_ == DType::F16 ? f32_to_f16(value) : f32_to_bf16(value);
        std::memcpy(bytes.data() + static_cast<size_t>(row * stride_ + kSpare + column) * element,
                    dtype_ == DType::F32 ? static_cast<const void*>(&value) : &half, element);
      }
    }
    return GpuBytes(bytes);
  }
  float decode(const std::vector<std::byte>& bytes, int64_t i) const {
    if (dtype_ == DType::F32) return reinterpret_cast<const float*>(bytes.data())[i];
    const uint16_t bits = reinterpret_cast<const uint16_t*>(bytes.data())[i];
    return dtype_ == DType::F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }

  Matrix host_;
  DType dtype_;
  int64_t stride_;
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
