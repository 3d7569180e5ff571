#include "tensor/quantize_k.h"

#include <cmath>
#include <span>

#include "tensor/half.h"
#include "tensor/scale_fit.h"

namespace millrace {
namespace {

using Numbers = std::span<const float>;

float as_f16(float v) { return f16_to_f32(f32_to_f16(v)); }

// A block whose groups have signed integer scales in [-kMost, kMost - 1], in units of d.
template <int kGroups, int kMost>
struct ScaledGroups {
  float d = 0;  // rounded to f16
  int scales[kGroups] = {};
  uint8_t codes[256] = {};
};

// The unit d with the least weighted error for the chosen codes and scales.
template <class Levels, int kGroups, int kMost>
float refit_unit(const ScaledGroups<kGroups, kMost>& block, Numbers x, Numbers w) {
  double wxl = 0, wll = 0;
  for (size_t e = 0; e < 256; ++e) {
    const double level = static_cast<double>(block.scales[e / (256 / kGroups)] * Levels::value(block.codes[e]));
    wxl += static_cast<double>(w[e] * x[e]) * level;
    wll += static_cast<double>(w[e]) * level * level;
  }
  return wll > 0 ? static_cast<float>(wxl / wll) : 0;
}

template <class Levels, int kGroups, int kMost>
ScaledGroups<kGroups, kMost> fit_groups(Numbers x, const float* importance) {
  constexpr size_t kSize = 256 / kGroups;
  float w[256], scales[kGroups], largest = 0;
  for (size_t g = 0; g < kGroups; ++g) {
    weigh(x.data() + g * kSize, importance == nullptr ? nullptr : importance + g * kSize, kSize, w + g * kSize);
    scales[g] = fit_scale<Levels, kSize>(x.data() + g * kSize, w + g * kSize);
    largest = std::abs(scales[g]) > std::abs(largest) ? scales[g] : largest;
  }
  ScaledGroups<kGroups, kMost> block;
  block.d = as_f16(largest / -kMost);  // the negative side has one more level
  const auto choose_codes = [&] {
    for (size_t g = 0; g < kGroups; ++g) {
      const float inverse_scale = inverse(block.d * static_cast<float>(block.scales[g]));
      for (size_t e = g * kSize; e < (g + 1) * kSize; ++e) {
        block.codes[e] = static_cast<uint8_t>(Levels::code(x[e] * inverse_scale));
      }
    }
  };
  for (int g = 0; g < kGroups; ++g) block.scales[g] = nearest(scales[g] * inverse(block.d), -kMost, kMost - 1);
  choose_codes();
  block.d = as_f16(refit_unit<Levels>(block, x, w));
  choose_codes();
  return block;
}

// A block whose groups have a scale and a minimum in [0, kMost], each in its own unit: x ~ d * scale * q - dmin * min.
template <int kGroups, int kMost>
struct AffineGroups {
  float d = 0, dmin = 0;  // rounded to f16
  int scales[kGroups] = {}, mins[kGroups] = {};
  uint8_t codes[256] = {};
};

template <int kGroups, int kMost>
void choose_codes(AffineGroups<kGroups, kMost>& block, Numbers x, int levels) {
  constexpr size_t kSize = 256 / kGroups;
  for (size_t g = 0; g < kGroups; ++g) {
    const float inverse_scale = inverse(block.d * static_cast<float>(block.scales[g]));
    const float min = block.dmin * static_cast<float>(block.mins[g]);
    for (size_t e = g * kSize; e < (g + 1) * kSize; ++e) {
      block.codes[e] = static_cast<uint8_t>(nearest((x[e] + min) * inverse_scale, 0, levels));
    }
  }
}

// The units d and dmin with the least weighted error for the chosen codes, scales and mins.
template <int kGroups, int kMost>
void refit_units(AffineGroups<kGroups, kMost>& block, Numbers x, Numbers w) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;  // the normal equations of x ~ d * a + dmin * b
  for (size_t e = 0; e < 256; ++e) {
    const size_t g = e / (256 / kGroups);
    const auto a = static_cast<double>(block.scales[g] * block.codes[e]), b = static_cast<double>(-block.mins[g]);
    const auto weight = static_cast<double>(w[e]), value = static_cast<double>(x[e]);
    aa += weight * a * a;
    ab += weight * a * b;
    bb += weight * b * b;
    ax += weight * a * value;
    bx += weight * b * value;
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant > 1e-9 * aa * bb) {
    block.d = as_f16(static_cast<float>((bb * ax - ab * bx) / determinant));
    block.dmin = as_f16(static_cast<float>((aa * bx - ab * ax) / determinant));
  } else if (bb == 0 && aa > 0) {
    block.d = as_f16(static_cast<float>(ax / aa));
  }
}

template <int kGroups, int kMost>
AffineGroups<kGroups, kMost> fit_affine_groups(Numbers x, const float* importance, int levels) {
  constexpr size_t kSize = 256 / kGroups;
  float w[256], largest_scale = 0, largest_min = 0;
  AffineFit fits[kGroups];
  for (size_t g = 0; g < kGroups; ++g) {
    weigh(x.data() + g * kSize, importance == nullptr ? nullptr : importance + g * kSize, kSize, w + g * kSize);
    fits[g] = fit_affine<kSize>(x.data() + g * kSize, w + g * kSize, levels);
    largest_scale = std::max(largest_scale, fits[g].scale);
    largest_min = std::max(largest_min, fits[g].min);
  }
  AffineGroups<kGroups, kMost> block;
  block.d = as_f16(largest_scale / kMost);
  block.dmin = as_f16(largest_min / kMost);
  for (int g = 0; g < kGroups; ++g) {
    block.scales[g] = nearest(fits[g].scale * inverse(block.d), 0, kMost);
    block.mins[g] = nearest(fits[g].min * inverse(block.dmin), 0, kMost);
  }
  choose_codes(block, x, levels);
  refit_units(block, x, w);
  choose_codes(block, x, levels);
  return block;
}

// Packing into the layouts of blocks.h.

void pack_two_bits(const uint8_t* codes, uint8_t* qs) {
  for (int e = 0; e < 256; ++e) qs[e / 128 * 32 + e % 32] |= static_cast<uint8_t>((codes[e] & 3) << (e / 32 % 4 * 2));
}

void pack_k_nibbles(const uint8_t* codes, uint8_t* qs) {
  for (int e = 0; e < 256; ++e) qs[e / 64 * 32 + e % 32] |= static_cast<uint8_t>((codes[e] & 15) << (e / 32 % 2 * 4));
}

void pack_bit(const uint8_t* codes, int bit, uint8_t* qh) {
  for (int e = 0; e < 256; ++e) qh[e % 32] |= static_cast<uint8_t>((codes[e] >> bit & 1) << (e / 32));
}

void pack_k_scales_mins(const int* scales, const int* mins, uint8_t (&packed)[12]) {
  for (int g = 0; g < 4; ++g) {
    packed[g] = static_cast<uint8_t>(scales[g] | scales[g + 4] >> 4 << 6);
    packed[g + 4] = static_cast<uint8_t>(mins[g] | mins[g + 4] >> 4 << 6);
    packed[g + 8] = static_cast<uint8_t>((scales[g + 4] & 15) | (mins[g + 4] & 15) << 4);
  }
}

template <class Block>
void encode_4_or_5_bits(const float* x, const float* importance, Block& block, int levels, AffineGroups<8, 63>& fit) {
  fit = fit_affine_groups<8, 63>({x, 256}, importance, levels);
  block = {};
  block.d = f32_to_f16(fit.d);
  block.dmin = f32_to_f16(fit.dmin);
  pack_k_scales_mins(fit.scales, fit.mins, block.scales);
  pack_k_nibbles(fit.codes, block.qs);
}

}  // namespace

void encode(const float* x, const float* importance, BlockQ4_K& block) {
  AffineGroups<8, 63> fit;
  encode_4_or_5_bits(x, importance, block, 15, fit);
}

void encode(const float* x, const float* importance, BlockQ5_K& block) {
  AffineGroups<8, 63> fit;
  encode_4_or_5_bits(x, importance, block, 31, fit);
  pack_bit(fit.codes, 4, block.qh);
}

void encode(const float* x, const float* importance, BlockQ2_K& block) {
  const auto fit = fit_affine_groups<16, 15>({x, 256}, importance, 3);
  block = {};
  block.d = f32_to_f16(fit.d);
  block.dmin = f32_to_f16(fit.dmin);
  for (int g = 0; g < 16; ++g) block.scales[g] = static_cast<uint8_t>(fit.scales[g] | fit.mins[g] << 4);
  pack_two_bits(fit.codes, block.qs);
}

void encode(const float* x, const float* importance, BlockQ3_K& block) {
  const auto fit = fit_groups<EvenLevels<-4>, 16, 32>({x, 256}, importance);
  block = {};
  block.d = f32_to_f16(fit.d);
  for (int g = 0; g < 16; ++g) {
    const int scale = fit.scales[g] + 32;
    block.scales[g % 8] |= static_cast<uint8_t>((scale & 15) << (g / 8 * 4));
    block.scales[8 + g % 4] |= static_cast<uint8_t>(scale >> 4 << (g / 4 * 2));
  }
  pack_two_bits(fit.codes, block.qs);
  pack_bit(fit.codes, 2, block.hmask);
}

void encode(const float* x, const float* importance, BlockQ6_K& block) {
  const auto fit = fit_groups<EvenLevels<-32>, 16, 128>({x, 256}, importance);
  block = {};
  block.d = f32_to_f16(fit.d);
  for (int g = 0; g < 16; ++g) block.scales[g] = static_cast<int8_t>(fit.scales[g]);
  uint8_t high[256];
  for (int e = 0; e < 256; ++e) {
    block.ql[e / 128 * 64 + e % 64] |= static_cast<uint8_t>((fit.codes[e] & 15) << (e / 64 % 2 * 4));
    high[e] = fit.codes[e] >> 4;
  }
  pack_two_bits(high, block.qh);
}

void encode(const float* x, const float* importance, BlockIQ4_NL& block) {
  float w[32];
  weigh(x, importance, 32, w);
  block = {};
  block.d = f32_to_f16(fit_scale<Iq4Levels, 32>(x, w));
  const float inverse_scale = inverse(f16_to_f32(block.d));
  for (int e = 0; e < 32; ++e) {
    block.qs[e % 16] |= static_cast<uint8_t>(Iq4Levels::code(x[e] * inverse_scale) << (e / 16 * 4));
  }
}

void encode(const float* x, const float* importance, BlockIQ4_XS& block) {
  const auto fit = fit_groups<Iq4Levels, 8, 32>({x, 256}, importance);
  block = {};
  block.d = f32_to_f16(fit.d);
  for (int g = 0; g < 8; ++g) {
    const int scale = fit.scales[g] + 32;
    block.scales_l[g / 2] |= static_cast<uint8_t>((scale & 15) << (g % 2 * 4));
    block.scales_h = static_cast<uint16_t>(block.scales_h | scale >> 4 << (g * 2));
  }
  for (int e = 0; e < 256; ++e)
    block.qs[e / 32 * 16 + e % 16] |= static_cast<uint8_t>(fit.codes[e] << (e / 16 % 2 * 4));
}

}  // namespace millrace
