// Scales that one lane needs of a unit of four-bit weights, in the bits of the file: some runs of columns for its rows
// g and g + 8. They are decoded only when the products are ready, so that a waiting unit takes few registers.
#pragma once

#include "kernels/linear/cuda/quantized/unit_fragments.cuh"

namespace millrace {

template <int kWords>
__device__ __forceinline__ void load_words(const uint8_t* from, uint32_t (&to)[kWords]) {
  struct alignas(4 * kWords) Words {
    uint32_t at[kWords];
  };
  const Words words = *reinterpret_cast<const Words*>(from);
#pragma unroll
  for (int i = 0; i < kWords; ++i) to[i] = words.at[i];
}

// Two bytes as floats: placed below the exponent of 1024 as f16, then 1024 is subtracted.
__device__ __forceinline__ float2 two_bytes_of(uint32_t bytes, int from) {
  const uint32_t halves = __byte_perm(bytes, 0x64646464u, from == 0 ? 0x4140 : 0x4342);
  return __half22float2(__hsub2(*reinterpret_cast<const __half2*>(&halves), __float2half2_rn(1024.f)));
}

// Scale plane of Q4_K: eight scales and minima of six bits; the upper two bits of the last four are stored separately.
// Returns the bytes scale, scale, minimum, minimum of runs 2 t and 2 t + 1, without a branch.
__device__ __forceinline__ uint32_t super_numbers(const uint4& header, int t) {
  const bool odd = t % 2 != 0, last = t >= 2;
  const uint32_t both = __byte_perm(header.y, header.z, odd ? 0x7632 : 0x5410);
  const uint32_t rest = __byte_perm(header.w, 0, odd ? 0x4432 : 0x4410);
  const uint32_t low = (rest | rest << 12) & (last ? 0x0f0f0f0fu : 0);
  return and_or(both >> (last ? 2 : 0), last ? 0x30303030u : 0x3f3f3f3fu, low);
}

// kPairs: number of consecutive pairs of runs, 1, 2 or 4 of the four; those of the lane's group.
template <DType kFormat, int kPairs>
struct LaneScales;

template <int kPairs>
__device__ __forceinline__ int first_pair(int lane) {
  return lane % 4 / kPairs * kPairs;
}

// One f16 per run.
template <int kPairs>
struct LaneScales<DType::Q4_0, kPairs> {
  uint32_t pairs[2][kPairs];  // of rows g and g + 8

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    const uint8_t* plane = unit + Unit<DType::Q4_0>::kScale + first_pair<kPairs>(lane) * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) load_words(plane + (lane / 4 + 8 * half) * 16, pairs[half]);
  }

  // Adds the products of two runs to a row's sum. `runs`: for each run, the factor of the integers and the correction
  // for the stored zero point.
  __device__ __forceinline__ void add(int half, int pair, const int (&products)[2], const float4& runs,
                                      float& sum) const {
    const uint32_t two = pairs[half][pair];
    sum = fmaf(half_bits(two, 0), fmaf(runs.x, static_cast<float>(products[0]), runs.y), sum);
    sum = fmaf(half_bits(two, 1), fmaf(runs.z, static_cast<float>(products[1]), runs.w), sum);
  }
};

// Scale and minimum of each run as two f16.
template <int kPairs>
struct LaneScales<DType::Q4_1, kPairs> {
  uint32_t words[2][2 * kPairs];

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    constexpr int kEach = kPairs == 1 ? 2 : 4;  // consecutive words: a plane holds those of two pairs
    const int first = first_pair<kPairs>(lane);
    const uint8_t* plane = unit + Unit<DType::Q4_1>::kScale + first / 2 * 256 + first % 2 * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2 * kPairs; i += kEach) {
        uint32_t some[kEach];
        load_words(plane + i / 4 * 256 + (lane / 4 + 8 * half) * 16, some);
#pragma unroll
        for (int j = 0; j < kEach; ++j) words[half][i + j] = some[j];
      }
    }
  }

  // Here and below, `runs` holds the sums of x for the minima instead of corrections.
  __device__ __forceinline__ void add(int half, int pair, const int (&products)[2], const float4& runs,
                                      float& sum) const {
    const uint32_t first = words[half][2 * pair], second = words[half][2 * pair + 1];
    sum = fmaf(half_bits(first, 0), runs.x * static_cast<float>(products[0]), sum);
    sum = fmaf(half_bits(second, 0), runs.z * static_cast<float>(products[1]), sum);
    sum = fmaf(half_bits(first, 1), runs.y, sum);
    sum = fmaf(half_bits(second, 1), runs.w, sum);
  }
};

// Two f16 for all runs, and six bits per run. A product times its scale is an integer below 2^30.
template <int kPairs>
struct LaneScales<DType::Q4_K, kPairs> {
  uint32_t both[2], numbers[2][kPairs];

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      const uint4 header = *reinterpret_cast<const uint4*>(unit + Unit<DType::Q4_K>::kScale + row * 16);
      both[half] = header.x;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) numbers[half][i] = super_numbers(header, first_pair<kPairs>(lane) + i);
    }
  }

  __device__ __forceinline__ void add(int half, int pair, const int (&products)[2], const float4& runs,
                                      float& sum) const {
    const uint32_t four = numbers[half][pair];
    const auto first = static_cast<int>(four & 255), second = static_cast<int>(four >> 8 & 255);
    const float2 minima = two_bytes_of(four, 2);
    const float scaled = fmaf(runs.z, static_cast<float>(second * products[1]),  //
                              runs.x * static_cast<float>(first * products[0]));
    const float offset = fmaf(minima.y, runs.w, minima.x * runs.y);
    sum = fmaf(half_bits(both[half], 0), scaled, sum);
    sum = fmaf(-half_bits(both[half], 1), offset, sum);
  }
};

}  // namespace millrace
