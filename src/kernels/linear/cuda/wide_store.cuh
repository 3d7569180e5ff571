// How a warpgroup stores the sums of its 64 tokens x 256 rows of weights: rounded, gated, with the bias, in boxes of 64
// tokens x 128 bytes that bulk copies take out of shared memory while the next tile is multiplied. Outputs that such
// copies cannot reach go straight from the registers.
//
// Sums lie as the product leaves them: of each eight rows `block` of weights a thread holds rows 2 t and 2 t + 1
// (t = lane % 4) for tokens g and g + 8 of its warp (g = lane / 4), in sums[4 block ...]. Gates and ups alternate by
// eight rows, so a thread has the up of each of its gates.
#pragma once

#include "kernels/linear/cuda/epilogue.cuh"
#include "kernels/linear/cuda/wgmma.cuh"

namespace millrace {

enum class WideStore { Gated, Halves, Floats, Direct };  // Gated and Halves: y has the type of x

inline constexpr int kWideSums = 128;                                        // of a thread
inline constexpr int kBoxTokens = 64, kBoxRowBytes = 128, kWideBoxBytes = kBoxTokens * kBoxRowBytes;
inline constexpr int kBoxesAtOnce = 2;

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
__device__ __forceinline__ void add_biases(const LinearOutput& out, int row, float (&sums)[kWideSums]) {
  if (out.bias == nullptr) return;
#pragma unroll
  for (int block = 0; block < kWideSums / 4; ++block) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = row + 8 * block + threadIdx.x % 4 * 2 + i;
      const float bias = at < out.n ? out.bias[at] : 0.f;
      sums[4 * block + i] += bias;
      sums[4 * block + 2 + i] += bias;
    }
  }
}

// Where a warpgroup's outputs go: its two boxes in shared memory, and the tensor.
class WideBoxes {
 public:
  __device__ WideBoxes(uint8_t* boxes, int group)
      : boxes_(boxes + group * kBoxesAtOnce * kWideBoxBytes),
        group_(group),
        warp_(threadIdx.x / 32 % 4),
        lane_(threadIdx.x % 32) {}

  // The box that was stored two boxes ago has been read.
  __device__ __forceinline__ void open(int box) const {
    if (is_storing()) wait_boxes_read<kBoxesAtOnce - 1>();
    meet_warpgroup(group_);
  }
  __device__ __forceinline__ void close(int box, const CUtensorMap& y, int column, int token, bool accumulate) const {
    publish_for_copies();
    meet_warpgroup(group_);
    if (!is_storing()) return;
    const uint8_t* from = boxes_ + box % kBoxesAtOnce * kWideBoxBytes;
    if (accumulate) {
      add_box(y, column, token, from);
    } else {
      store_box(y, column, token, from);
    }
    commit_boxes();
  }
  __device__ __forceinline__ void finish() const {
    if (is_storing()) wait_boxes_stored();
  }

  // Outputs of eight rows of weights: 16 bytes of a token each, `chunk` of them from the left; `pairs` has those of
  // tokens g and g + 8 for this chunk and the next. Lanes name rows of the four squares of 8 x 8.
  __device__ __forceinline__ void put_halves(int box, int chunk, const uint32_t (&pairs)[4]) const {
    const int token = warp_ * 16 + lane_ % 16, at = chunk + lane_ / 16;
    const uint32_t to =
        shared_address(boxes_ + box % kBoxesAtOnce * kWideBoxBytes + token * kBoxRowBytes + ((at ^ token % 8) * 16));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pairs[0]),
                 "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
  }
  // The same in f32: eight rows of weights are two chunks.
  __device__ __forceinline__ void put_floats(int box, int block, float2 upper, float2 lower) const {
    const int g = lane_ / 4, t = lane_ % 4, at = 2 * block + t / 2;
    uint8_t* to = boxes_ + box % kBoxesAtOnce * kWideBoxBytes + (warp_ * 16 + g) * kBoxRowBytes + (at ^ g) * 16 + t % 2 * 8;
    *reinterpret_cast<float2*>(to) = upper;
    *reinterpret_cast<float2*>(to + 8 * kBoxRowBytes) = lower;
  }
  __device__ __forceinline__ int lane() const { return lane_; }

 private:
  __device__ __forceinline__ bool is_storing() const { return threadIdx.x % 128 == 0; }
  uint8_t* boxes_;
  int group_, warp_, lane_;
};

// A block of eight rows: tokens g (x, y) and g + 8 (z, w).
__device__ __forceinline__ float4 plain_block(const float (&sums)[kWideSums], int block) {
  return {sums[4 * block], sums[4 * block + 1], sums[4 * block + 2], sums[4 * block + 3]};
}

__device__ __forceinline__ float4 gated_block(const float (&sums)[kWideSums], int block) {
  const float4 gate = plain_block(sums, 2 * block), up = plain_block(sums, 2 * block + 1);
  return {silu_times(gate.x, up.x), silu_times(gate.y, up.y), silu_times(gate.z, up.z), silu_times(gate.w, up.w)};
}

template <class T, bool kGated>
__device__ __forceinline__ void store_halves(const float (&sums)[kWideSums], const WideBoxes& boxes,
                                             const CUtensorMap& y, int row, int token) {
  constexpr int kColumns = kBoxRowBytes / 2, kBlocks = kColumns / 8, kCount = (kGated ? 16 : 32) / kBlocks;
#pragma unroll
  for (int box = 0; box < kCount; ++box) {
    boxes.open(box);
#pragma unroll
    for (int chunk = 0; chunk < kBlocks; chunk += 2) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int block = box * kBlocks + chunk + i;
        const float4 v = kGated ? gated_block(sums, block) : plain_block(sums, block);
        pairs[2 * i] = pack_two<T>(v.x, v.y);
        pairs[2 * i + 1] = pack_two<T>(v.z, v.w);
      }
      boxes.put_halves(box, chunk, pairs);
    }
    boxes.close(box, y, (kGated ? row / 2 : row) + box * kColumns, token, false);
  }
}

// Odd tokens take their blocks in another order: two neighbours would else meet on the same banks.
__device__ __forceinline__ void store_floats(const float (&sums)[kWideSums], const WideBoxes& boxes,
                                             const CUtensorMap& y, bool accumulate, int row, int token) {
  constexpr int kColumns = kBoxRowBytes / 4, kBlocks = kColumns / 8, kCount = 32 / kBlocks;
  const bool odd = boxes.lane() / 4 % 2 != 0;
#pragma unroll
  for (int box = 0; box < kCount; ++box) {
    boxes.open(box);
#pragma unroll
    for (int i = 0; i < kBlocks / 2; ++i) {
      const float4 a = plain_block(sums, box * kBlocks + i);
      const float4 b = plain_block(sums, box * kBlocks + i + 2);
      const float4 first = odd ? b : a, second = odd ? a : b;
      boxes.put_floats(box, i + 2 * odd, {first.x, first.y}, {first.z, first.w});
      boxes.put_floats(box, i + 2 * !odd, {second.x, second.y}, {second.z, second.w});
    }
    boxes.close(box, y, row + box * kColumns, token, accumulate);
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

__device__ __forceinline__ float store_direct_two(const LinearOutput& out, int token, int column, int columns, float v0,
                                                  float v1) {
  if (token >= out.m) return 0;
  const int count = columns - column;
  const int64_t at = token * out.stride + column;
  if (out.type == DType::BF16) return store_two(static_cast<__nv_bfloat16*>(out.y) + at, v0, v1, count, out.accumulate);
  if (out.type == DType::F16) return store_two(static_cast<__half*>(out.y) + at, v0, v1, count, out.accumulate);
  return store_two(static_cast<float*>(out.y) + at, v0, v1, count, out.accumulate);
}

// Any output: of any type, at any address, with the squares of what is stored.
__device__ __forceinline__ void store_direct(const float (&sums)[kWideSums], const LinearOutput& out, int row,
                                             int token) {
  const int lane = threadIdx.x % 32, first = token + threadIdx.x / 32 % 4 * 16 + lane / 4;
  float squares = 0, squares8 = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (out.gate_up && i >= 16) break;
    const float4 v = out.gate_up ? gated_block(sums, i % 16) : plain_block(sums, i);
    const int column = (out.gate_up ? row / 2 : row) + 8 * i + lane % 4 * 2, columns = out.gate_up ? out.n / 2 : out.n;
    squares += store_direct_two(out, first, column, columns, v.x, v.y);
    squares8 += store_direct_two(out, first + 8, column, columns, v.z, v.w);
  }
  if (out.sum_squares == nullptr) return;
  if (first < out.m) atomicAdd(out.sum_squares + first, squares);
  if (first + 8 < out.m) atomicAdd(out.sum_squares + first + 8, squares8);
}

}  // namespace millrace
