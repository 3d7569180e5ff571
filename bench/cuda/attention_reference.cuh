// Plain f64 attention: one block per row and head.
#pragma once

#include "harness.cuh"
#include "kernels/attention/cuda/launch.h"

namespace millrace::bench {

struct ReferenceParams {
  CudaAttentionArgs args;
  CudaAttentionShape shape;
  double* weights;  // [rows * heads][longest]
  int longest;
  float* out;  // [rows][heads * head_dim]
};

__device__ inline double element(const void* data, DType dtype, int64_t row, int64_t row_length, int i) {
  if (dtype == DType::Q8_0) {
    const char* block = static_cast<const char*>(data) + (row * row_length + i) / 32 * 34;
    return double(__half2float(*reinterpret_cast<const __half*>(block))) * static_cast<signed char>(block[2 + i % 32]);
  }
  return with_device_type(dtype, [&](auto type) {
    return double(to_float(static_cast<const decltype(type)*>(data)[row * row_length + i]));
  });
}

__global__ void reference_attention(const ReferenceParams p) {
  const CudaAttentionShape& s = p.shape;
  const int row = blockIdx.x / s.heads, head = blockIdx.x % s.heads, kv_head = head / (s.heads / s.kv_heads);
  int sequence = 0;
  while (sequence < s.sequences && (row < p.args.slices[sequence].first_row ||
                                    row >= p.args.slices[sequence].first_row + p.args.slices[sequence].rows)) {
    ++sequence;
  }
  if (sequence == s.sequences) return;
  const DeviceSlice slice = p.args.slices[sequence];
  const int32_t* table = p.args.tables + sequence * p.args.table_pitch;
  const int last = slice.past + row - slice.first_row;
  const int first = p.args.window > 0 ? max(0, last - p.args.window + 1) : 0;
  double* weights = p.weights + static_cast<int64_t>(blockIdx.x) * p.longest;
  __shared__ double largest, total;
  auto kv_row = [&](int position) {
    return (static_cast<int64_t>(table[position / s.block_size]) * s.kv_heads + kv_head) * s.block_size +
           position % s.block_size;
  };
  for (int position = first + threadIdx.x; position <= last; position += blockDim.x) {
    double dot = 0;
    for (int i = 0; i < s.head_dim; ++i) {
      const double q = with_device_type(p.args.q.dtype, [&](auto type) {
        return double(
            to_float(static_cast<const decltype(type)*>(p.args.q.data)[row * p.args.q.stride + head * s.head_dim + i]));
      });
      dot += q * element(p.args.keys, s.kv, kv_row(position), s.head_dim, i);
    }
    double x = fmin(fmax(dot * p.args.scale, -double(kScoreLimit)), double(kScoreLimit));
    if (p.args.softcap > 0) x = p.args.softcap * tanh(x / p.args.softcap);
    weights[position] = x;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    largest = weights[first];
    for (int position = first; position <= last; ++position) largest = fmax(largest, weights[position]);
    total = 0;
    for (int position = first; position <= last; ++position) {
      weights[position] = exp(weights[position] - largest);
      total += weights[position];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < s.head_dim; i += blockDim.x) {
    double sum = 0;
    for (int position = first; position <= last; ++position) {
      sum += weights[position] * element(p.args.values, s.kv, kv_row(position), s.head_dim, i);
    }
    p.out[static_cast<int64_t>(row) * s.heads * s.head_dim + head * s.head_dim + i] = static_cast<float>(sum / total);
  }
}

}  // namespace millrace::bench
