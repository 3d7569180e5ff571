// How a warp stores its part of a tile: 16 tokens x 176 rows of weights, gated or plain, through a box in shared memory
// that a bulk copy takes from there. Outputs that such copies cannot reach go straight from the registers.
//
// Sums lie as the product leaves them: of each eight rows `block` of weights a thread holds rows 2 t and 2 t + 1
// (t = lane % 4) for tokens g and g + 8 (g = lane / 4), in sums[4 block ...]. Gates and ups alternate by eight rows, so
// a thread has the up of each of its gates.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/wgmma.cuh"

namespace millrace {

enum class PingStore { Gated, Halves, Floats, Direct };  // Gated and Halves: y has the type of x

inline constexpr int kPingRows = 176, kPingBlocks = kPingRows / 8, kPingSums = kPingRows / 2;
// Of a box: 16 tokens in 16 bits or 8 in 32. Its rows are an odd number of 16 bytes: they begin on different banks.
inline constexpr int kPingColumns = kPingRows / 2, kPingBoxBytes = 16 * kPingColumns * 2;

template <class T>
__device__ __forceinline__ uint32_t pack_two(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&two);
  } else {
    const __half2 two{rounded<T>(low), rounded<T>(high)};
    return *reinterpret_cast<const uint32_t*>(&two);
  }
}

// The bias of every sum, of the tile's rows from `row` on.
__device__ __forceinline__ void add_biases(const LinearOutput& out, int row, float (&sums)[kPingSums]) {
  if (out.bias == nullptr) return;
#pragma unroll
  for (int block = 0; block < kPingBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = row + 8 * block + threadIdx.x % 4 * 2 + i;
      const float bias = at < out.n ? out.bias[at] : 0.f;
      sums[4 * block + i] += bias;
      sums[4 * block + 2 + i] += bias;
    }
  }
}

// A block of eight rows: tokens g (x, y) and g + 8 (z, w).
__device__ __forceinline__ float4 plain_block(const float (&sums)[kPingSums], int block) {
  return {sums[4 * block], sums[4 * block + 1], sums[4 * block + 2], sums[4 * block + 3]};
}

__device__ __forceinline__ float4 gated_block(const float (&sums)[kPingSums], int block) {
  const float4 gate = plain_block(sums, 2 * block), up = plain_block(sums, 2 * block + 1);
  return {silu_times(gate.x, up.x), silu_times(gate.y, up.y), silu_times(gate.z, up.z), silu_times(gate.w, up.w)};
}

// The box before this one has been read.
__device__ __forceinline__ void open_box() {
  if (threadIdx.x % 32 == 0) wait_boxes_read<0>();
  __syncwarp();
}

__device__ __forceinline__ void close_box(const CUtensorMap& y, int column, int token, const uint8_t* box,
                                          bool accumulate) {
  publish_for_copies();
  __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  if (accumulate) {
    add_box(y, column, token, box);
  } else {
    store_box(y, column, token, box);
  }
  commit_boxes();
}

// Blocks 2 i and 2 i + 1 of a box, 16 bytes of a token each; lanes name rows of the squares of 8 x 8. Of the last block,
// which has no other, they name the same row twice.
__device__ __forceinline__ void put_halves(uint8_t* box, int i, const uint32_t (&pairs)[4]) {
  const int lane = threadIdx.x % 32, block = min(2 * i + lane / 16, kPingColumns / 8 - 1);
  const uint32_t to = shared_address(box + lane % 16 * kPingColumns * 2 + block * 16);
  if (2 * i + 1 < kPingColumns / 8) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pairs[0]),
                 "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(pairs[0]), "r"(pairs[1])
                 : "memory");
  }
}

template <class T, bool kGated>
__device__ __forceinline__ void store_halves(const float (&sums)[kPingSums], uint8_t* box, const CUtensorMap& y, int row,
                                             int token) {
  constexpr int kBlocks = kPingColumns / 8;
#pragma unroll
  for (int part = 0; part < (kGated ? 1 : 2); ++part) {
    open_box();
#pragma unroll
    for (int i = 0; i < (kBlocks + 1) / 2; ++i) {
      uint32_t pairs[4] = {};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (2 * i + j >= kBlocks) break;
        const int block = part * kBlocks + 2 * i + j;
        const float4 v = kGated ? gated_block(sums, block) : plain_block(sums, block);
        pairs[2 * j] = pack_two<T>(v.x, v.y);
        pairs[2 * j + 1] = pack_two<T>(v.z, v.w);
      }
      put_halves(box, i, pairs);
    }
    close_box(y, (kGated ? row / 2 : row) + part * kPingColumns, token, box, false);
  }
}

__device__ __forceinline__ void store_floats(const float (&sums)[kPingSums], uint8_t* box, const CUtensorMap& y,
                                             bool accumulate, int row, int token) {
  constexpr int kBlocks = kPingColumns / 8;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float2* to = reinterpret_cast<float2*>(box) + g * kPingColumns / 2 + t;
#pragma unroll
  for (int part = 0; part < 4; ++part) {  // tokens g and g + 8 of the first rows, and of the others
    open_box();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const float4 v = plain_block(sums, part / 2 * kBlocks + i);
      to[4 * i] = part % 2 == 0 ? float2{v.x, v.y} : float2{v.z, v.w};
    }
    close_box(y, row + part / 2 * kPingColumns, token + part % 2 * 8, box, accumulate);
  }
}

// Two neighbouring outputs of a token; returns the sum of their squares.
template <class T>
__device__ __forceinline__ float store_two(T* y, float v0, float v1, int count, bool accumulate) {
  if (count > 0) {
    if (accumulate) v0 += to_float(y[0]);
    y[0] = rounded<T>(v0);
  }
  if (count > 1) {
    if (accumulate) v1 += to_float(y[1]);
    y[1] = rounded<T>(v1);
  }
  return (count > 0 ? v0 * v0 : 0) + (count > 1 ? v1 * v1 : 0);
}

__device__ __forceinline__ float store_two(const LinearOutput& out, int token, int column, float v0, float v1) {
  if (token >= out.m) return 0;
  const int count = (out.gate_up ? out.n / 2 : out.n) - column;
  const int64_t at = token * out.stride + column;
  if (out.type == DType::BF16) return store_two(static_cast<__nv_bfloat16*>(out.y) + at, v0, v1, count, out.accumulate);
  if (out.type == DType::F16) return store_two(static_cast<__half*>(out.y) + at, v0, v1, count, out.accumulate);
  return store_two(static_cast<float*>(out.y) + at, v0, v1, count, out.accumulate);
}

// Any output: of any type, at any address, with the squares of what is stored.
__device__ __forceinline__ void store_direct(const float (&sums)[kPingSums], const LinearOutput& out, int row,
                                             int token) {
  const int lane = threadIdx.x % 32, first = token + lane / 4;
  float squares = 0, squares8 = 0;
#pragma unroll
  for (int i = 0; i < kPingBlocks; ++i) {
    if (out.gate_up && i >= kPingBlocks / 2) break;
    const float4 v = out.gate_up ? gated_block(sums, i % (kPingBlocks / 2)) : plain_block(sums, i);
    const int column = (out.gate_up ? row / 2 : row) + 8 * i + lane % 4 * 2;
    squares += store_two(out, first, column, v.x, v.y);
    squares8 += store_two(out, first + 8, column, v.z, v.w);
  }
  if (out.sum_squares == nullptr) return;
  if (first < out.m) atomicAdd(out.sum_squares + first, squares);
  if (first + 8 < out.m) atomicAdd(out.sum_squares + first + 8, squares8);
}

template <class T, PingStore kStore>
__device__ __forceinline__ void store_sums(float (&sums)[kPingSums], uint8_t* box, const CUtensorMap& y,
                                           const LinearOutput& out, int row, int token) {
  add_biases(out, row, sums);
  if constexpr (kStore == PingStore::Direct) {
    store_direct(sums, out, row, token);
  } else if constexpr (kStore == PingStore::Floats) {
    store_floats(sums, box, y, out.accumulate, row, token);
  } else {
    store_halves<T, kStore == PingStore::Gated>(sums, box, y, row, token);
  }
}

}  // namespace millrace
