// Loads and stores of eight consecutive elements in any plain format, as wide as the format allows. For kernels bound
// by memory: the format is a run-time value, uniform over the grid.
#pragma once

#include "kernels/cuda/device.cuh"

namespace millrace {

struct Eight {
  float at[8];
};

template <class T>
__device__ inline Eight widen(const T* from) {
  constexpr int kEach = 16 / sizeof(T);
  Eight v;
#pragma unroll
  for (int i = 0; i < 8; i += kEach) {
    const auto part = *reinterpret_cast<const Vector<T, kEach>*>(from + i);
#pragma unroll
    for (int j = 0; j < kEach; ++j) v.at[i + j] = to_float(part.at[j]);
  }
  return v;
}

template <class T>
__device__ inline void narrow(T* to, const Eight& v) {
  constexpr int kEach = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < 8; i += kEach) {
    Vector<T, kEach> part;
#pragma unroll
    for (int j = 0; j < kEach; ++j) part.at[j] = from_float<T>(v.at[i + j]);
    *reinterpret_cast<Vector<T, kEach>*>(to + i) = part;
  }
}

// Whether rows of `cols` elements can be moved in vectors of eight: each row must start at a multiple of 16 bytes.
inline bool moves_by_eights(const CudaMatrix& m, int64_t cols) {
  return m.data == nullptr || (cols % 8 == 0 && m.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.data) % 16 == 0);
}

// Loads eight elements from `index` on if kWide; otherwise the first `count` of them, one by one.
template <bool kWide>
__device__ Eight load_eight(const CudaMatrix& m, int64_t index, int count) {
  return with_device_type(m.dtype, [&](auto type) {
    const auto* from = static_cast<const decltype(type)*>(m.data) + index;
    if constexpr (kWide) {
      return widen(from);
    } else {
      Eight v = {};
      for (int i = 0; i < count; ++i) v.at[i] = to_float(from[i]);
      return v;
    }
  });
}

template <bool kWide>
__device__ void store_eight(const CudaMatrix& m, int64_t index, const Eight& v, int count) {
  with_device_type(m.dtype, [&](auto type) {
    auto* to = static_cast<decltype(type)*>(m.data) + index;
    if constexpr (kWide) {
      narrow(to, v);
    } else {
      for (int i = 0; i < count; ++i) to[i] = from_float<decltype(type)>(v.at[i]);
    }
    return 0;
  });
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

}  // namespace millrace
