// The scales of a unit of four-bit numbers that one lane wants, in the bits of the file: those of the runs 2 t and 2 t + 1
// of columns, for its rows g and g + 8. They are decoded when products are there to be multiplied, so that a unit can wait
// in few registers.
#pragma once

#include "kernels/linear/cuda/unit_fragments.cuh"

namespace millrace {

// Two bytes as floats: under the exponent of 1024 as f16, then without it.
__device__ __forceinline__ float2 two_bytes_of(uint32_t bytes, int from) {
  const uint32_t halves = __byte_perm(bytes, 0x64646464u, from == 0 ? 0x4140 : 0x4342);
  return __half22float2(__hsub2(*reinterpret_cast<const __half2*>(&halves), __float2half2_rn(1024.f)));
}

// The scale planes of Q4_K: six bits for each of eight scales and minima, of which the upper two of the last four are
// elsewhere. Returns the bytes scale, scale, minimum, minimum of the runs 2 t and 2 t + 1; without a branch.
__device__ __forceinline__ uint32_t super_numbers(const uint4& header, int t) {
  const bool odd = t % 2 != 0, last = t >= 2;
  const uint32_t both = __byte_perm(header.y, header.z, odd ? 0x7632 : 0x5410);
  const uint32_t rest = header.w >> (odd ? 16 : 0);
  const uint32_t low = (rest | rest << 12) & (last ? 0x0f0f0f0fu : 0);
  return and_or(both >> (last ? 2 : 0), last ? 0x30303030u : 0x3f3f3f3fu, low);
}

template <DType kFormat>
struct LaneScales;

// One f16 for each run.
template <>
struct LaneScales<DType::Q4_0> {
  uint32_t pair[2];  // of rows g and g + 8

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      pair[half] = *reinterpret_cast<const uint32_t*>(unit + Unit<DType::Q4_0>::kScale + row * 16 + lane % 4 * 4);
    }
  }

  // Adds the products of two runs to a row's sum. `runs`: for each of them the factor of integers, and what takes the
  // stored zero out again.
  __device__ __forceinline__ void add(int half, const int (&products)[2], const float4& runs, float& sum) const {
    sum = fmaf(half_bits(pair[half], 0), fmaf(runs.x, static_cast<float>(products[0]), runs.y), sum);
    sum = fmaf(half_bits(pair[half], 1), fmaf(runs.z, static_cast<float>(products[1]), runs.w), sum);
  }
};

// A scale and a minimum as two f16 for each run.
template <>
struct LaneScales<DType::Q4_1> {
  uint2 pairs[2];

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
    const int t = lane % 4;
    const uint8_t* plane = unit + Unit<DType::Q4_1>::kScale + t / 2 * 256 + t % 2 * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      pairs[half] = *reinterpret_cast<const uint2*>(plane + (lane / 4 + 8 * half) * 16);
    }
  }

  // Here and below `runs` has the sums of x that minima are multiplied with.
  __device__ __forceinline__ void add(int half, const int (&products)[2], const float4& runs, float& sum) const {
    const uint2 two = pairs[half];
    sum = fmaf(half_bits(two.x, 0), runs.x * static_cast<float>(products[0]), sum);
    sum = fmaf(half_bits(two.y, 0), runs.z * static_cast<float>(products[1]), sum);
    sum = fmaf(half_bits(two.x, 1), runs.y, sum);
    sum = fmaf(half_bits(two.y, 1), runs.w, sum);
  }
};

// Two f16 for all runs, and six bits for each: a product and they are an integer of less than 2^30.
template <>
struct LaneScales<DType::Q4_K> {
  uint32_t pair[2], numbers[2];

  __device__ __forceinline__ void load(const uint8_t* unit, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      const uint4 header = *reinterpret_cast<const uint4*>(unit + Unit<DType::Q4_K>::kScale + row * 16);
      pair[half] = header.x;
      numbers[half] = super_numbers(header, lane % 4);
    }
  }

  __device__ __forceinline__ void add(int half, const int (&products)[2], const float4& runs, float& sum) const {
    const auto first = static_cast<int>(numbers[half] & 255), second = static_cast<int>(numbers[half] >> 8 & 255);
    const float2 minima = two_bytes_of(numbers[half], 2);
    const float scaled = fmaf(runs.z, static_cast<float>(second * products[1]),  //
                              runs.x * static_cast<float>(first * products[0]));
    const float offset = fmaf(minima.y, runs.w, minima.x * runs.y);
    sum = fmaf(half_bits(pair[half], 0), scaled, sum);
    sum = fmaf(-half_bits(pair[half], 1), offset, sum);
  }
};

}  // namespace millrace
