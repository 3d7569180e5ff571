// How a warpgroup stores silu(gate) * up of its 64 tokens x 256 rows of weights: in boxes of 64 tokens x 64 outputs
// that bulk copies take out of shared memory while the next tile is multiplied; outputs that such copies cannot reach
// are stored by the threads.
//
// Sums lie as the product leaves them: of each eight rows `block` of weights a thread holds rows 2 t and 2 t + 1
// (t = lane % 4) for tokens g and g + 8 of its warp (g = lane / 4), in sums[4 block ...]. Gates and ups alternate by
// eight rows, so a thread has the up of each of its gates.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/wgmma.cuh"

namespace millrace {

inline constexpr int kWideRows = 256, kWideSums = kWideRows / 2, kWideOutputs = kWideRows / 2;  // sums: of a thread
inline constexpr int kBoxTokens = 64, kBoxColumns = 64, kBoxRowBytes = kBoxColumns * 2;
inline constexpr int kBoxBytes = kBoxTokens * kBoxRowBytes, kBoxes = kWideOutputs / kBoxColumns;  // of a warpgroup

template <class T>
__device__ __forceinline__ uint32_t pack_two(float2 v) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(v.x, v.y);
    return *reinterpret_cast<const uint32_t*>(&two);
  } else {
    const __half2 two{rounded<T>(v.x), rounded<T>(v.y)};
    return *reinterpret_cast<const uint32_t*>(&two);
  }
}

// Two at a time, with one reciprocal: there are few units for such functions, and all warps want them at once. Gates
// below the bound give 0 beside anything that f32 holds; without it the product could overflow.
__device__ __forceinline__ float2 silu_times(float2 gate, float2 up) {
  constexpr float kLeast = -40;
  const float first = 1 + __expf(-fmaxf(gate.x, kLeast)), second = 1 + __expf(-fmaxf(gate.y, kLeast));
  const float inverse = __fdividef(1, first * second);
  return {gate.x * up.x * (inverse * second), gate.y * up.y * (inverse * first)};
}

// The bias of every sum, of the tile's rows from `row` on.
__device__ __forceinline__ void add_biases(const LinearOutput& out, int row, float (&sums)[kWideSums]) {
  if (out.bias == nullptr) return;
#pragma unroll
  for (int i = 0; i < kWideSums; ++i) {
    const int at = row + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (at < out.n) sums[i] += out.bias[at];
  }
}

// Outputs of a token (g, or g + 8 where `lower`) of eight gates and their ups.
__device__ __forceinline__ float2 gated_two(const float (&sums)[kWideSums], int block, int lower) {
  const int gate = 8 * block + 2 * lower, up = gate + 4;
  return silu_times(float2{sums[gate], sums[gate + 1]}, float2{sums[up], sums[up + 1]});
}

// Outputs 8 `block` to 8 `block` + 15 of a box, 16 bytes of a token in a piece; lanes name the rows of four squares of
// 8 x 8. Pieces are permuted as the copy expects it, so that no two meet on the same banks.
template <class T>
__device__ __forceinline__ void put_pieces(const float (&sums)[kWideSums], uint8_t* box, int first, int block) {
  const int lane = threadIdx.x % 32, token = threadIdx.x / 32 % 4 * 16 + lane % 16, piece = block + lane / 16;
  const uint32_t to = shared_address(box + token * kBoxRowBytes + (piece ^ token % 8) * 16);
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = pack_two<T>(gated_two(sums, first + block + i / 2, i % 2));
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pairs[0]),
               "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

// `boxes`: the warpgroup's own, one for each half of the tile.
template <class T>
__device__ __forceinline__ void store_boxes(const float (&sums)[kWideSums], uint8_t* boxes, int group,
                                            const CUtensorMap& y, int column, int token) {
  const bool stores = threadIdx.x % 128 == 0;
#pragma unroll
  for (int i = 0; i < kBoxes; ++i) {
    uint8_t* box = boxes + i * kBoxBytes;
    if (stores) wait_boxes_read<kBoxes - 1>();  // the last tile's box has left this place
    meet_warpgroup(group);
#pragma unroll
    for (int block = 0; block < kBoxColumns / 8; block += 2) put_pieces<T>(sums, box, i * kBoxColumns / 8, block);
    publish_for_copies();
    meet_warpgroup(group);
    if (stores) store_box(y, column + i * kBoxColumns, token, box);
  }
}

// Any output, of any type at any address, with the squares of what is stored: `staged` takes 32 outputs of each token.
__device__ __forceinline__ void store_any(const float (&sums)[kWideSums], float* staged, int group,
                                          const LinearOutput& out, int column, int token) {
  constexpr int kColumns = 32, kStride = kColumns + 4;
  static_assert(kBoxTokens * kStride * 4 <= kBoxes * kBoxBytes);
  const int lane = threadIdx.x % 32;
  float* to = staged + (threadIdx.x / 32 % 4 * 16 + lane / 4) * kStride + lane % 4 * 2;
#pragma unroll
  for (int part = 0; part < kWideOutputs / kColumns; ++part, column += kColumns) {
    meet_warpgroup(group);
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      const float2 v = gated_two(sums, part * kColumns / 8 + i / 2, i % 2);
      *reinterpret_cast<float2*>(to + i % 2 * 8 * kStride + i / 2 * 8) = v;
    }
    meet_warpgroup(group);
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x) % 128; item < kBoxTokens * kColumns / 4; item += 128) {
      const int row = item / (kColumns / 4), at = item % (kColumns / 4) * 4, count = min(4, out.n / 2 - column - at);
      if (token + row >= out.m || count <= 0) continue;
      const float4 v = *reinterpret_cast<const float4*>(staged + row * kStride + at);
      const float squares = store_four(out, token + row, column + at, v, count);
      if (out.sum_squares != nullptr) atomicAdd(out.sum_squares + token + row, squares);
    }
  }
}

}  // namespace millrace
