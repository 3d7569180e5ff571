// Epilogue of a flat GEMM with few instructions, since code that runs once costs by its length: sums go from registers
// straight to y. If two blocks share K, each finishes every other token: a thread sends the other block's half of its
// sums to the thread with the same index there, and a barrier counts the bytes.
#pragma once

#include "kernels/linear/cuda/barrier.cuh"
#include "kernels/linear/cuda/shared_norm.cuh"

namespace millrace {

// Outputs have x's type or f32; only f32 outputs can be accumulated.
inline bool is_lean(const CudaLinearProblem& p, const LinearOutput& out) {
  return out.sum_squares == nullptr && (out.type == p.x || (out.type == DType::F32 && !p.gate_up)) &&
         (!p.accumulate || out.type == DType::F32);
}

__device__ __forceinline__ void store_if(float* to, float v, bool live) {
  asm volatile("{\n.reg .pred live;\nsetp.ne.b32 live, %2, 0;\n@live st.global.f32 [%0], %1;\n}" ::"l"(to), "f"(v),
               "r"(static_cast<int>(live))
               : "memory");
}
template <class T>
__device__ __forceinline__ void store_if(T* to, float v, bool live) {
  const T small = rounded<T>(v);
  uint16_t bits;
  memcpy(&bits, &small, 2);
  asm volatile("{\n.reg .pred live;\nsetp.ne.b32 live, %2, 0;\n@live st.global.b16 [%0], %1;\n}" ::"l"(to), "h"(bits),
               "r"(static_cast<int>(live))
               : "memory");
}
__device__ __forceinline__ float load_if(const float* from, bool live) {
  float v;
  asm volatile("{\n.reg .pred live;\nsetp.ne.b32 live, %2, 0;\nmov.b32 %0, 0;\n@live ld.global.cg.f32 %0, [%1];\n}"
               : "=&f"(v)
               : "l"(from), "r"(static_cast<int>(live))
               : "memory");
  return v;
}

// The sums of a warp are in the order of the products: four per eight tokens, rows g and g + 8 (lane 4 g + t) of tokens
// 2 t and 2 t + 1. A "half" below is tokens 2 t or tokens 2 t + 1.
template <class T, NormHalf kHalf, int kTokens>
class LeanFinish {
  static constexpr int kEights = kTokens / 8;

 public:
  // Bytes that a block sends to the other one.
  static __host__ __device__ constexpr int bytes_sent(int rows) { return rows * kTokens * 2; }

  __device__ __forceinline__ LeanFinish(const LinearOutput& out, const SharedNorm& norm, int rows, int first_row,
                                        int splits)
      : out_(out), norm_(norm), splits_(splits), first_half_(splits > 1 ? cluster_rank() : 0) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    has_rows_ = warp * kTileRows < rows;
    row_ = first_row + warp * kTileRows + lane / 4;
    low_ = has_rows_ && row_ < out.n;
    high_ = has_rows_ && row_ + 8 < out.n;
    token_ = lane % 4 * 2;
  }

  // Call before the products: loads the outputs that the first half accumulates to early.
  __device__ __forceinline__ void prepare() {
    if constexpr (kHalf == NormHalf::Ahead) {
      low_weight_ = load_if(norm_.ahead.weights + row_, low_);
      high_weight_ = load_if(norm_.ahead.weights + row_ + 8, high_);
    }
    wait_for_previous_kernel();
    load_before(first_half_);
  }

  __device__ __forceinline__ void send(float* received, uint64_t* arrived, const float (&sums)[kTokens / 2]) const {
    if (!has_rows_) return;
    const int other = 1 - first_half_;
    const uint32_t to = cluster_address(slot(received), other), barrier = cluster_address(arrived, other);
#pragma unroll
    for (int j = 0; j + 1 < kEights; j += 2) {
      const float4 four = {of(sums, j, 0, other), of(sums, j, 1, other), of(sums, j + 1, 0, other),
                           of(sums, j + 1, 1, other)};
      send_cluster(to + j / 2 * 512, four, barrier);
    }
    if constexpr (kEights == 1) send_cluster(to, float2{of(sums, 0, 0, other), of(sums, 0, 1, other)}, barrier);
  }

  // If two blocks share K, `received` holds the sums of the other block.
  __device__ __forceinline__ void run(const float (&sums)[kTokens / 2], const float* received, const float* scales) {
    if (!has_rows_) return;
#pragma unroll 1
    for (int half = first_half_; half < 2; ++half) {
      if (half != first_half_) {
        if (splits_ > 1) break;
        load_before(half);
      }
      store_half(half, sums, slot(received), scales);
    }
  }

 private:
  static __device__ __forceinline__ float of(const float (&sums)[kTokens / 2], int eight, int row, int half) {
    return half ? sums[4 * eight + 2 * row + 1] : sums[4 * eight + 2 * row];
  }
  template <class F>
  static __device__ __forceinline__ F* slot(F* received) {
    return received + threadIdx.x / 32 * (kTokens * 8) + threadIdx.x % 32 * (kEights == 1 ? 2 : 4);
  }

  __device__ __forceinline__ void load_before(int half) {
    if (kHalf == NormHalf::Ahead || (kHalf == NormHalf::None && out_.accumulate)) {
      const float* y = static_cast<const float*>(out_.y) + (token_ + half) * out_.stride + row_;
#pragma unroll
      for (int j = 0; j < kEights; ++j, y += 8 * out_.stride) {
        const bool live = 8 * j + token_ + half < out_.m;
        before_[2 * j] = load_if(y, live && low_);
        before_[2 * j + 1] = load_if(y + 8, live && high_);
      }
    }
  }

  __device__ __forceinline__ void store_half(int half, const float (&sums)[kTokens / 2], const float* received,
                                             const float* scales) const {
    float low_bias = 0, high_bias = 0;
    if (out_.bias != nullptr) {
      low_bias = load_if(out_.bias + row_, low_);
      high_bias = load_if(out_.bias + row_ + 8, high_);
    }
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
      const int token = 8 * j + token_ + half;
      float low = of(sums, j, 0, half), high = of(sums, j, 1, half);
      if (splits_ > 1) {
        const float2 other = *reinterpret_cast<const float2*>(received + j / 2 * 128 + j % 2 * 2);
        low += other.x;
        high += other.y;
      }
      if constexpr (kHalf == NormHalf::Behind) {
        const float scale = scales[token];
        low *= scale;
        high *= scale;
      }
      store(token, low + low_bias, high + high_bias, j);
    }
  }

  __device__ __forceinline__ void store(int token, float low, float high, int j) const {
    const bool live = token < out_.m;
    if (kHalf == NormHalf::Ahead || (kHalf == NormHalf::None && out_.accumulate)) {
      low += before_[2 * j];
      high += before_[2 * j + 1];
    }
    if (kHalf == NormHalf::Ahead || out_.type == DType::F32) {
      float* y = static_cast<float*>(out_.y) + token * out_.stride + row_;
      store_if(y, low, live && low_);
      store_if(y + 8, high, live && high_);
      if constexpr (kHalf == NormHalf::Ahead) leave_norm(token, low, high, live);
    } else if (out_.gate_up) {
      T* y = static_cast<T*>(out_.y) + token * out_.stride + (row_ & ~15) / 2 + (row_ & 7);
      store_if(y, silu_times(low, high), live && high_);
    } else {
      T* y = static_cast<T*>(out_.y) + token * out_.stride + row_;
      store_if(y, low, live && low_);
      store_if(y + 8, high, live && high_);
    }
  }

  // First half of the norm of the residual stream.
  __device__ __forceinline__ void leave_norm(int token, float low, float high, bool live) const {
    T* scaled = static_cast<T*>(norm_.ahead.scaled) + token * norm_.ahead.stride + row_;
    store_if(scaled, low * low_weight_, live && low_);
    store_if(scaled + 8, high * high_weight_, live && high_);
    float squares = low * low + high * high;
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) squares += __shfl_xor_sync(0xffffffffu, squares, mask);
    float* at = norm_.ahead.squares + token * (out_.n / static_cast<int>(kNormPart)) + row_ / kNormPart;
    store_if(at, squares, live && low_ && threadIdx.x % 32 < 4);
  }

  const LinearOutput& out_;
  const SharedNorm& norm_;
  int splits_, first_half_, row_, token_;
  bool has_rows_, low_, high_;
  float before_[2 * kEights], low_weight_, high_weight_;
};

}  // namespace millrace
