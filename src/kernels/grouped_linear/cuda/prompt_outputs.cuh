// How the warps that multiply prompts (prompt.cuh) store their outputs. A store instruction of accumulators would cover
// eight outputs of four pairs, which are pieces of 16 bytes. So a warp exchanges its outputs through shared memory and
// stores 32 bytes of each pair.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/store_matrices.cuh"
#include "kernels/grouped_linear/cuda/prompt.cuh"

namespace millrace {

// A lane's outputs for 32 pairs in a tile of 16 rows: at[4 j + 2 h + i] is row lane / 4 + 8 h of pair
// 8 j + lane % 4 * 2 + i.
struct PromptTile {
  float at[16];

  template <class F>
  __device__ __forceinline__ void change(F f) {  // f(number, j, h, i)
#pragma unroll
    for (int n = 0; n < 16; ++n) at[n] = f(at[n], n / 4, n / 2 % 2, n % 2);
  }
};

// The choice is made once, so that the code of each activation runs in a line.
__device__ __forceinline__ void gate_outputs(const GroupedParams& p, PromptTile& v, const PromptTile& up) {
  const auto each = [&](auto activate) {
#pragma unroll
    for (int n = 0; n < 16; ++n) v.at[n] = activate(v.at[n], up.at[n]);
  };
  if (p.activation == Activation::Silu) return each([](float g, float u) { return g / (1 + __expf(-g)) * u; });
  if (p.activation == Activation::ClampedSwiglu) {
    return each([&](float g, float u) { return clamped_swiglu(g, u, p.clamp); });
  }
  each([&](float g, float u) { return gated_value(p, g, u); });
}

// Stores the outputs of a warp's two tiles for the pairs of an item, 32 pairs at a time.
class PromptOutputs {
 public:
  static constexpr int kAtOnce = 32, kTileBytes = kAtOnce * 16 * 2, kBytes = 2 * kTileBytes;  // of a warp

  // `warp`: of those that multiply.
  __device__ PromptOutputs(const GroupedParams& p, uint8_t* shared, int warp)
      : p_(p), own_(shared + warp * kBytes), lane_(static_cast<int>(threadIdx.x) % 32), warp_(warp) {
    whole_ = p.y.dtype != DType::F32 && p.outputs % 8 == 0 && p.y.stride % 8 == 0 &&
             reinterpret_cast<uintptr_t>(p.y.data) % 16 == 0;
  }

  __device__ __forceinline__ void store(const PromptItem& item, const PromptSums& sums, float factor) const {
    const bool gated = p_.half > 0;
    const int first = item.rows * (gated ? kPromptRows / 2 : kPromptRows) + 16 * warp_;
    const RowBias low(p_, item.group, first, first);
    const int second = gated ? p_.half + first : first + kPromptRows / 2;
    const RowBias high(p_, item.group, gated ? first : second, second);
#pragma unroll 1  // much code, of which only the registers of a chunk differ
    for (int begin = 0; begin < item.count; begin += kAtOnce) {
      PromptTile a, b;
#pragma unroll
      for (int i = 0; i < kPromptPairs / kAtOnce; ++i) {
        if (i * kAtOnce == begin) {
          a = taken(sums[0], i);
          b = taken(sums[1], i);
        }
      }
      a.change([&](float x, int, int h, int) { return x * factor + low.at[h]; });
      b.change([&](float x, int, int h, int) { return x * factor + high.at[h]; });
      if (gated) {
        gate_outputs(p_, a, b);
        store_tile(item, begin, first, own_, a);
      } else {
        weigh(item, begin, a);
        weigh(item, begin, b);
        store_tile(item, begin, first, own_, a);
        store_tile(item, begin, second, own_ + kTileBytes, b);
      }
      __syncwarp();
    }
  }

 private:
  // The biases of a lane's two rows of a tile, which begins at `row` and has the outputs from `output` on.
  struct RowBias {
    float at[2] = {0, 0};
    __device__ RowBias(const GroupedParams& p, int group, int output, int row) {
      if (p.bias == nullptr) return;
      const int own = static_cast<int>(threadIdx.x) % 32 / 4;
      const float* bias = p.bias + static_cast<int64_t>(group) * p.n + row + own;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (output + own + 8 * h < p.outputs) at[h] = bias[8 * h];
      }
    }
  };

  __device__ __forceinline__ static PromptTile taken(const float (&sums)[kPromptPairs / 2], int chunk) {
    PromptTile v;
#pragma unroll
    for (int n = 0; n < 16; ++n) v.at[n] = sums[16 * chunk + n];
    return v;
  }
  __device__ __forceinline__ void weigh(const PromptItem& item, int begin, PromptTile& v) const {
    if (!p_.sum) return;
    v.change([&](float x, int j, int, int i) { return x * item.weights[begin + 8 * j + lane_ % 4 * 2 + i]; });
  }

  __device__ __forceinline__ uint32_t pack_two(float a, float b) const {
    if (p_.y.dtype == DType::BF16) return pack<__nv_bfloat16>(a, b);
    return pack<__half>(within_half(a), within_half(b));
  }
  // Where eight outputs of a pair lie in a tile; without conflicts of banks.
  __device__ __forceinline__ static int place(int pair, int half) { return pair * 32 + (half ^ pair / 4 % 2) * 16; }

  __device__ __forceinline__ void store_tile(const PromptItem& item, int begin, int first, uint8_t* tile,
                                             const PromptTile& v) const {
    if (!whole_) return store_each(item, begin, first, v);
    __syncwarp();  // lanes without outputs have left the tile before
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const float* of = v.at + 8 * q;
      const uint32_t packed[4] = {pack_two(of[0], of[1]), pack_two(of[2], of[3]), pack_two(of[4], of[5]),
                                  pack_two(of[6], of[7])};
      const int pair = 16 * q + lane_ / 16 * 8 + lane_ % 8;
      store_matrices_transposed(shared_address(tile + place(pair, lane_ / 8 % 2)), packed);
    }
    __syncwarp();
    const int output = first + lane_ % 2 * 8;
    if (output >= p_.outputs) return;
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const int pair = 16 * q + lane_ / 2;
      if (begin + pair >= item.count) return;
      *reinterpret_cast<uint4*>(p_.y.data + (item.pairs[begin + pair] * p_.y.stride + output) * 2) =
          *reinterpret_cast<const uint4*>(tile + place(pair, lane_ % 2));
    }
  }
  __device__ __forceinline__ void store_each(const PromptItem& item, int begin, int first, const PromptTile& v) const {
#pragma unroll 1
    for (int n = 0; n < 16; ++n) {
      float value = 0;
#pragma unroll
      for (int other = 0; other < 16; ++other) value = other == n ? v.at[other] : value;
      const int pair = begin + n / 4 * 8 + lane_ % 4 * 2 + n % 2, output = first + lane_ / 4 + n / 2 % 2 * 8;
      if (pair < item.count && output < p_.outputs) p_.y.set(item.pairs[pair], output, value);
    }
  }

  const GroupedParams& p_;
  uint8_t* own_;
  int lane_, warp_;
  bool whole_;  // eight outputs are 16 aligned bytes
};

inline constexpr int kPromptOutputBytes = kPromptWarps * PromptOutputs::kBytes;

}  // namespace millrace
