// One table of linear problems for tests and benchmarks, and random weights of every format.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/matrix.h"

namespace millrace {

struct LinearShape {
  int64_t n, k;
};

// Row counts that do not fill a tile, odd numbers of blocks, and more elements than one panel. Under sanitizers kernels
// are tens of times slower, so each property occurs once, with every kernel and format.
#ifdef MILLRACE_SANITIZED
inline std::vector<LinearShape> test_shapes(DType format) {
  const int64_t block = info(format).block;
  if (block == 256) return {{1, 256}, {41, 768}, {9, 2304}};
  if (block == 32) return {{1, 32}, {41, 160}, {9, 2144}};
  return {{1, 1}, {41, 163}, {9, 2145}};
}
inline constexpr int64_t kTestRows[] = {1, 2, 5, 8, 13, 33, 48};
#else
inline std::vector<LinearShape> test_shapes(DType format) {
  const int64_t block = info(format).block;
  if (block == 256) return {{1, 256}, {7, 512}, {9, 768}, {100, 256}, {192, 2304}};
  if (block == 32) return {{1, 32}, {7, 96}, {9, 160}, {100, 224}, {192, 576}, {33, 2144}};
  return {{1, 1}, {7, 33}, {9, 160}, {100, 227}, {192, 576}, {33, 2145}};
}
inline constexpr int64_t kTestRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 33, 48, 64, 100};
#endif

// Shapes of SmolLM2-135M and of Llama-3.2-1B: attention, feed-forward, head.
inline constexpr LinearShape kSmallModelShapes[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
inline constexpr LinearShape kBillionModelShapes[] = {{3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}};

namespace detail {

inline uint16_t random_scale(std::mt19937& rng, float largest) {
  return f32_to_f16(std::uniform_real_distribution<float>(-largest, largest)(rng));
}

inline void set_scales(BlockMXFP4& b, std::mt19937& rng) { b.e = static_cast<uint8_t>(115 + rng() % 8); }

inline void set_scales(BlockF8_E4M3& b, std::mt19937& rng) {
  b.d = std::uniform_real_distribution<float>(-1e-3f, 1e-3f)(rng);
  for (uint8_t& q : b.qs) q = (q & 0x7f) == 0x7f ? 0 : q;  // no NaN
}

template <class Block>
void set_scales(Block& b, std::mt19937& rng) {
  b.d = random_scale(rng, 0.01f);
  if constexpr (requires { b.m; }) b.m = random_scale(rng, 0.05f);
  if constexpr (requires { b.dmin; }) b.dmin = random_scale(rng, 0.01f);
}

template <class Block>
void fill_blocks(std::vector<std::byte>& data, std::mt19937& rng) {
  for (auto& byte : data) byte = static_cast<std::byte>(rng() >> 7);
  for (size_t i = 0; i < data.size(); i += sizeof(Block)) set_scales(*reinterpret_cast<Block*>(&data[i]), rng);
}

}  // namespace detail

// Random bits with plausible scales: covers every bit pattern of every format.
inline std::vector<std::byte> random_weights(DType format, int64_t n, int64_t k, std::mt19937& rng) {
  std::vector<std::byte> data(static_cast<size_t>(n) * row_bytes(format, k));
  std::normal_distribution<float> normal(0, 0.1f);
  switch (format) {
    case DType::F32:
      for (size_t i = 0; i < data.size(); i += 4) {
        const float value = normal(rng);
        std::memcpy(&data[i], &value, sizeof value);
      }
      break;
    case DType::F16:
    case DType::BF16:
      for (size_t i = 0; i < data.size(); i += 2) {
        const uint16_t value = format == DType::F16 ? f32_to_f16(normal(rng)) : f32_to_bf16(normal(rng));
        std::memcpy(&data[i], &value, sizeof value);
      }
      break;
    case DType::Q8_0:
      detail::fill_blocks<BlockQ8_0>(data, rng);
      break;
    case DType::Q4_0:
      detail::fill_blocks<BlockQ4_0>(data, rng);
      break;
    case DType::Q4_1:
      detail::fill_blocks<BlockQ4_1>(data, rng);
      break;
    case DType::Q5_0:
      detail::fill_blocks<BlockQ5_0>(data, rng);
      break;
    case DType::Q5_1:
      detail::fill_blocks<BlockQ5_1>(data, rng);
      break;
    case DType::Q2_K:
      detail::fill_blocks<BlockQ2_K>(data, rng);
      break;
    case DType::Q3_K:
      detail::fill_blocks<BlockQ3_K>(data, rng);
      break;
    case DType::Q4_K:
      detail::fill_blocks<BlockQ4_K>(data, rng);
      break;
    case DType::Q5_K:
      detail::fill_blocks<BlockQ5_K>(data, rng);
      break;
    case DType::Q6_K:
      detail::fill_blocks<BlockQ6_K>(data, rng);
      break;
    case DType::IQ4_NL:
      detail::fill_blocks<BlockIQ4_NL>(data, rng);
      break;
    case DType::IQ4_XS:
      detail::fill_blocks<BlockIQ4_XS>(data, rng);
      break;
    case DType::MXFP4:
      detail::fill_blocks<BlockMXFP4>(data, rng);
      break;
    case DType::F8_E4M3:
      detail::fill_blocks<BlockF8_E4M3>(data, rng);
      break;
  }
  return data;
}

// Cycles through rows that are ordinary, of wide dynamic range, all zero, one spike in small noise, and tiny.
inline std::vector<float> random_activations(int64_t m, int64_t k, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * k));
  for (int64_t i = 0; i < m; ++i) {
    float* row = &x[static_cast<size_t>(i * k)];
    for (int64_t j = 0; j < k; ++j) {
      row[j] = normal(rng);
      if (i % 5 == 1) row[j] *= std::exp2(4 * normal(rng));
      if (i % 5 == 2) row[j] = 0;
      if (i % 5 == 3) row[j] *= 1e-3f;
      if (i % 5 == 4) row[j] *= 1e-12f;
    }
    if (i % 5 == 3) row[static_cast<int64_t>(rng() % static_cast<uint32_t>(k))] = 1000;
  }
  return x;
}

}  // namespace millrace
