#include "tensor/quantize_weighted.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tensor/half.h"
#include "tensor/kv_dtype.h"
#include "tensor/quantize_k.h"
#include "tensor/scale_fit.h"

namespace millrace {
namespace {

// Without importance the small blocks match ggml's encoder bit for bit.

// Truncates v to an integer in [0, most]; NaN gives 0.
int cut(float v, int most) { return v > 0 ? static_cast<int>(std::min(v, static_cast<float>(most))) : 0; }

float number_of_largest_magnitude(const float* x) {
  float found = 0;
  for (int e = 0; e < 32; ++e) found = std::abs(x[e]) > std::abs(found) ? x[e] : found;
  return found;
}

void put_nibble(uint8_t* qs, int e, int q) { qs[e % 16] |= static_cast<uint8_t>((q & 15) << (e / 16 * 4)); }
void put_fifth_bit(uint8_t* qh, int e, int q) { qh[e / 8] |= static_cast<uint8_t>((q >> 4 & 1) << (e % 8)); }

void encode(const float* x, const float* /*importance*/, BlockQ8_0& block) {
  const float d = std::abs(number_of_largest_magnitude(x)) / 127;
  block.d = f32_to_f16(d);
  for (int e = 0; e < 32; ++e) {
    const float v = x[e] * inverse(d);
    block.qs[e] = static_cast<int8_t>(v < 0 ? -cut(0.5f - v, 127) : cut(v + 0.5f, 127));
  }
}

// The scale of a format with levels on both sides of zero.
template <int kLeast>
float scale_of(const float* x, const float* importance) {
  if (importance == nullptr) return number_of_largest_magnitude(x) / kLeast;
  float w[32];
  weigh(x, importance, 32, w);
  return f16_to_f32(f32_to_f16(fit_scale<EvenLevels<kLeast>, 32>(x, w)));  // codes are for the scale as stored
}

void encode(const float* x, const float* importance, BlockQ4_0& block) {
  const float d = scale_of<-8>(x, importance);
  block = {};
  block.d = f32_to_f16(d);
  for (int e = 0; e < 32; ++e) put_nibble(block.qs, e, cut(x[e] * inverse(d) + 8.5f, 15));
}

void encode(const float* x, const float* importance, BlockQ5_0& block) {
  const float d = scale_of<-16>(x, importance);
  block = {};
  block.d = f32_to_f16(d);
  for (int e = 0; e < 32; ++e) {
    const int q = cut(x[e] * inverse(d) + 16.5f, 31);
    put_nibble(block.qs, e, q);
    put_fifth_bit(block.qh, e, q);
  }
}

// d and m of the formats with a minimum, which have `most` levels above it.
struct Affine {
  float d, m;
};
Affine span_of(const float* x, const float* importance, int most) {
  if (importance != nullptr) {
    float w[32];
    weigh(x, importance, 32, w);
    const AffineFit fit = fit_affine<32>(x, w, most);
    return {f16_to_f32(f32_to_f16(fit.scale)), f16_to_f32(f32_to_f16(-fit.min))};
  }
  const auto [low, high] = std::minmax_element(x, x + 32);
  return {(*high - *low) / static_cast<float>(most), *low};
}

void encode(const float* x, const float* importance, BlockQ4_1& block) {
  const Affine fit = span_of(x, importance, 15);
  block = {};
  block.d = f32_to_f16(fit.d);
  block.m = f32_to_f16(fit.m);
  for (int e = 0; e < 32; ++e) put_nibble(block.qs, e, cut((x[e] - fit.m) * inverse(fit.d) + 0.5f, 15));
}

void encode(const float* x, const float* importance, BlockQ5_1& block) {
  const Affine fit = span_of(x, importance, 31);
  block = {};
  block.d = f32_to_f16(fit.d);
  block.m = f32_to_f16(fit.m);
  for (int e = 0; e < 32; ++e) {
    const int q = cut((x[e] - fit.m) * inverse(fit.d) + 0.5f, 31);
    put_nibble(block.qs, e, q);
    put_fifth_bit(block.qh, e, q);
  }
}

// The scale puts the largest magnitude between 4 and 8 of the levels, whose top is 6. Ties go to the first level.
void encode(const float* x, const float* /*importance*/, BlockMXFP4& block) {
  const float most = std::abs(number_of_largest_magnitude(x));
  block = {};
  if (most > 0) block.e = static_cast<uint8_t>(std::clamp(std::floor(std::log2(most)) - 2 + 127, 0.0f, 254.0f));
  const float d = e8m0_half(block.e);
  for (int e = 0; e < 32; ++e) {
    int best = 0;
    float least = std::abs(x[e]);
    for (int q = 1; q < 16; ++q) {
      const float error = std::abs(d * float(kFp4Values[static_cast<size_t>(q)]) - x[e]);
      if (error < least) {
        least = error;
        best = q;
      }
    }
    put_nibble(block.qs, e, best);
  }
}

void encode(const float* x, const float* /*importance*/, BlockF8_E4M3& block) {
  block.d = std::abs(number_of_largest_magnitude(x)) / 448;
  for (int e = 0; e < 32; ++e) block.qs[e] = f32_to_e4m3(x[e] * inverse(block.d));
}

template <class Block>
void encode_row(const float* src, const float* importance, std::byte* dst, int64_t n) {
  auto* blocks = reinterpret_cast<Block*>(dst);
  for (int64_t i = 0; i < n / Block::kElements; ++i) {
    const int64_t first = i * Block::kElements;
    encode(src + first, importance == nullptr ? nullptr : importance + first, blocks[i]);
  }
}

}  // namespace

uint8_t f32_to_e4m3(float v) {
  const uint8_t sign = std::signbit(v) ? 0x80 : 0;
  const float magnitude = std::abs(v) > 0 ? std::min(std::abs(v), kLargestFp8) : 0.0f;
  // Adding 2^(exponent + 20) leaves three bits behind the leading one; subnormals have the unit 2^-9.
  const int exponent = std::max(std::ilogb(std::max(magnitude, 0x1p-9f)), -6);
  const float shift = std::ldexp(1.0f, exponent + 20);
  const float rounded = (magnitude + shift) - shift;
  const auto bits = std::bit_cast<uint32_t>(rounded);
  if (rounded < 0x1p-6f) return sign | static_cast<uint8_t>(rounded * 512);
  return sign | static_cast<uint8_t>((bits >> 20) - ((127 - 7) << 3));
}

void quantize_row(DType dtype, const float* src, std::byte* dst, int64_t n) {
  quantize_row(dtype, src, dst, n, nullptr);
}

void quantize_row(DType dtype, const float* src, std::byte* dst, int64_t n, const float* importance) {
  MR_ASSERT(n % info(dtype).block == 0);
  auto* halves = reinterpret_cast<uint16_t*>(dst);
  switch (dtype) {
    case DType::F32:
      if (n > 0) std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::F16:
      for (int64_t i = 0; i < n; ++i) halves[i] = f32_to_f16(src[i]);
      return;
    case DType::BF16:
      for (int64_t i = 0; i < n; ++i) halves[i] = f32_to_bf16(src[i]);
      return;
    case DType::Q8_0:
      return encode_row<BlockQ8_0>(src, importance, dst, n);
    case DType::Q4_0:
      return encode_row<BlockQ4_0>(src, importance, dst, n);
    case DType::Q4_1:
      return encode_row<BlockQ4_1>(src, importance, dst, n);
    case DType::Q5_0:
      return encode_row<BlockQ5_0>(src, importance, dst, n);
    case DType::Q5_1:
      return encode_row<BlockQ5_1>(src, importance, dst, n);
    case DType::Q2_K:
      return encode_row<BlockQ2_K>(src, importance, dst, n);
    case DType::Q3_K:
      return encode_row<BlockQ3_K>(src, importance, dst, n);
    case DType::Q4_K:
      return encode_row<BlockQ4_K>(src, importance, dst, n);
    case DType::Q5_K:
      return encode_row<BlockQ5_K>(src, importance, dst, n);
    case DType::Q6_K:
      return encode_row<BlockQ6_K>(src, importance, dst, n);
    case DType::IQ4_NL:
      return encode_row<BlockIQ4_NL>(src, importance, dst, n);
    case DType::IQ4_XS:
      return encode_row<BlockIQ4_XS>(src, importance, dst, n);
    case DType::MXFP4:
      return encode_row<BlockMXFP4>(src, importance, dst, n);
    case DType::F8_E4M3:
      return encode_row<BlockF8_E4M3>(src, importance, dst, n);
  }
}

}  // namespace millrace
