// How the warps that multiply prompts (prompt.cuh) store their outputs. A store instruction of accumulators would cover
// eight outputs of four pairs, which are pieces of 16 bytes. So a warp exchanges its sums through shared memory and
// stores 32 bytes of each pair.
#pragma once

#include "kernels/grouped_linear/cuda/prompt.cuh"

namespace millrace {

// Activations of eight outputs. The choice is made once, so that the code of each runs in a line.
__device__ __forceinline__ void gate_eight(const GroupedParams& p, float (&v)[8], const float (&up)[8]) {
  const auto each = [&](auto activate) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = activate(v[i], up[i]);
  };
  if (p.activation == Activation::Silu) return each([](float g, float u) { return g / (1 + __expf(-g)) * u; });
  if (p.activation == Activation::ClampedSwiglu) {
    return each([&](float g, float u) { return clamped_swiglu(g, u, p.clamp); });
  }
  each([&](float g, float u) { return gated_value(p, g, u); });
}

// Stores the outputs of a warp's two tiles for the pairs of an item, sixteen pairs at a time through shared memory.
class PromptOutputs {
 public:
  static constexpr int kPitch = 16 + 4;  // floats of a pair; spreads the pairs over the banks
  static constexpr int kTileFloats = 16 * kPitch, kBytes = 2 * kTileFloats * 4;  // of a warp

  // `warp`: of those that multiply.
  __device__ PromptOutputs(const GroupedParams& p, float* shared, int warp)
      : p_(p), own_(shared + warp * 2 * kTileFloats), lane_(static_cast<int>(threadIdx.x) % 32), warp_(warp) {
    whole_ = p.y.dtype != DType::F32 && p.outputs % 8 == 0 && p.y.stride % 8 == 0 &&
             reinterpret_cast<uintptr_t>(p.y.data) % 16 == 0;
  }

  __device__ __forceinline__ void store(const PromptItem& item, const PromptSums& sums, float factor) const {
    const int first = item.rows * (p_.half > 0 ? kPromptRows / 2 : kPromptRows) + 16 * warp_;
#pragma unroll 1  // much code, of which only the registers of a chunk differ
    for (int chunk = 0; 16 * chunk < item.count; ++chunk) {
#pragma unroll
      for (int i = 0; i < kPromptPairs / 16; ++i) {
        if (i == chunk) put(sums, i, factor);
      }
      __syncwarp();
      const int at = 16 * chunk + lane_ / 2;
      const int pair = at < item.count ? item.pairs[at] : -1;
      if (p_.half > 0) {
        store_gated(item.group, pair, first);
      } else {
        store_plain(item.group, pair, item.weights[at], first, 0);
        store_plain(item.group, pair, item.weights[at], first + kPromptRows / 2, 1);
      }
      __syncwarp();
    }
  }

 private:
  __device__ __forceinline__ void put(const PromptSums& sums, int chunk, float factor) const {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int pair = i / 4 * 8 + lane_ % 4 * 2 + i % 2, row = lane_ / 4 + i / 2 % 2 * 8;
        own_[tile * kTileFloats + pair * kPitch + row] = sums[tile][8 * chunk + i] * factor;
      }
    }
  }
  // Eight outputs of the lane's pair, from `output` on, with their bias.
  __device__ __forceinline__ void take(int group, int tile, int output, int row, float (&v)[8]) const {
    const float* from = own_ + tile * kTileFloats + lane_ / 2 * kPitch + lane_ % 2 * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 four = reinterpret_cast<const float4*>(from)[i];
      v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
    }
    if (p_.bias == nullptr) return;
    const float* bias = p_.bias + static_cast<int64_t>(group) * p_.n + row;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (output + i < p_.outputs) v[i] += bias[i];
    }
  }
  __device__ __forceinline__ void store_gated(int group, int pair, int first) const {
    const int output = first + lane_ % 2 * 8;
    if (pair < 0) return;
    float v[8], up[8];
    take(group, 0, output, output, v);
    take(group, 1, output, p_.half + output, up);
    gate_eight(p_, v, up);
    store_eight(pair, output, v);
  }
  __device__ __forceinline__ void store_plain(int group, int pair, float weight, int first, int tile) const {
    const int output = first + lane_ % 2 * 8;
    if (pair < 0) return;
    float v[8];
    take(group, tile, output, output, v);
#pragma unroll
    for (float& value : v) value *= weight;
    store_eight(pair, output, v);
  }
  __device__ __forceinline__ void store_eight(int pair, int output, const float (&v)[8]) const {
    if (output >= p_.outputs) return;
    if (!whole_) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (output + i < p_.outputs) p_.y.set(pair, output + i, v[i]);
      }
      return;
    }
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (p_.y.dtype == DType::BF16) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        words[i] = *reinterpret_cast<const uint32_t*>(&two);
      } else {
        const __half2 two = __floats2half2_rn(within_half(v[2 * i]), within_half(v[2 * i + 1]));
        words[i] = *reinterpret_cast<const uint32_t*>(&two);
      }
    }
    auto* to = reinterpret_cast<uint4*>(p_.y.data + (pair * p_.y.stride + output) * 2);
    *to = {words[0], words[1], words[2], words[3]};
  }

  const GroupedParams& p_;
  float* own_;
  int lane_, warp_;
  bool whole_;  // eight outputs are 16 aligned bytes
};

inline constexpr int kPromptOutputBytes = kPromptWarps * PromptOutputs::kBytes;

}  // namespace millrace
