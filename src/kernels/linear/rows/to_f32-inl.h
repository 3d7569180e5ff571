// Fast dequantization: loops that compilers vectorize turn each group of 32 elements into bytes, which then become f32
// with their scales. tensor/dequantize.h is the simple equivalent.

#if defined(MILLRACE_TO_F32_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_TO_F32_INL_H
#undef MILLRACE_TO_F32_INL_H
#else
#define MILLRACE_TO_F32_INL_H
#endif

#include "base/error.h"
#include "kernels/simd/simd-inl.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {
namespace {

template <DType dtype>
constexpr int64_t kElementBytes = dtype == DType::F32 ? 4 : 2;

// Loads kLanes numbers of a plain format.
template <DType dtype>
HWY_INLINE F32Vec load_plain(const std::byte* p) {
  if constexpr (dtype == DType::F32) return load(reinterpret_cast<const float*>(p));
  if constexpr (dtype == DType::F16) return load_f16(reinterpret_cast<const uint16_t*>(p));
  if constexpr (dtype == DType::BF16) return load_bf16(reinterpret_cast<const uint16_t*>(p));
}

// Loads n < kLanes numbers, padded with zeros. Reads no byte beyond them.
template <DType dtype>
HWY_INLINE F32Vec load_some(const std::byte* p, int64_t n) {
  alignas(64) std::byte padded[kLanes * kElementBytes<dtype>] = {};
  std::memcpy(padded, p, static_cast<size_t>(n * kElementBytes<dtype>));
  return load_plain<dtype>(padded);
}

struct Group32 {
  alignas(32) int8_t q[32];
  float scale[2], min[2];  // for elements 0..15 and 16..31: w = scale * q + min

  void set_scale(float s, float m = 0) {
    scale[0] = scale[1] = s;
    min[0] = min[1] = m;
  }
};

void split_nibbles(const uint8_t* qs, int zero_point, int8_t* q) {
  for (int i = 0; i < 16; ++i) q[i] = static_cast<int8_t>((qs[i] & 15) - zero_point);
  for (int i = 0; i < 16; ++i) q[16 + i] = static_cast<int8_t>((qs[i] >> 4) - zero_point);
}

void add_fifth_bits(const uint8_t* qh, int8_t* q) {
  constexpr uint8_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  uint8_t spread[32];
  for (int i = 0; i < 32; ++i) spread[i] = qh[i / 8];
  for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(q[i] + ((spread[i] & kBits[i % 8]) != 0 ? 16 : 0));
}

void look_up(const std::array<int8_t, 16>& levels, int8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] = levels[static_cast<size_t>(q[i])];
}

// q += bits [shift, shift + bits) of each of 32 bytes, shifted left by `up`.
void add_fields(const uint8_t* bytes, int shift, int bits, int up, int8_t* q) {
  const int mask = (1 << bits) - 1;
  for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(q[i] + ((bytes[i] >> shift & mask) << up));
}

void clear_to(int value, int8_t* q) { std::memset(q, value, 32); }

void read_group(const BlockQ8_0& b, int, Group32& to) {
  std::memcpy(to.q, b.qs, 32);
  to.set_scale(f16_to_f32(b.d));
}
void read_group(const BlockQ4_0& b, int, Group32& to) {
  split_nibbles(b.qs, 8, to.q);
  to.set_scale(f16_to_f32(b.d));
}
void read_group(const BlockQ4_1& b, int, Group32& to) {
  split_nibbles(b.qs, 0, to.q);
  to.set_scale(f16_to_f32(b.d), f16_to_f32(b.m));
}
void read_group(const BlockQ5_0& b, int, Group32& to) {
  split_nibbles(b.qs, 16, to.q);
  add_fifth_bits(b.qh, to.q);
  to.set_scale(f16_to_f32(b.d));
}
void read_group(const BlockQ5_1& b, int, Group32& to) {
  split_nibbles(b.qs, 0, to.q);
  add_fifth_bits(b.qh, to.q);
  to.set_scale(f16_to_f32(b.d), f16_to_f32(b.m));
}
void read_group(const BlockIQ4_NL& b, int, Group32& to) {
  split_nibbles(b.qs, 0, to.q);
  look_up(kIq4Values, to.q);
  to.set_scale(f16_to_f32(b.d));
}
void read_group(const BlockIQ4_XS& b, int g, Group32& to) {
  split_nibbles(b.qs + g * 16, 0, to.q);
  look_up(kIq4Values, to.q);
  to.set_scale(f16_to_f32(b.d) * static_cast<float>(iq4_xs_scale(b, g)));
}
void read_group(const BlockMXFP4& b, int, Group32& to) {
  split_nibbles(b.qs, 0, to.q);
  look_up(kFp4Values, to.q);
  to.set_scale(e8m0_half(b.e));
}
template <class Block>  // Q4_K, Q5_K
void set_scale_min(const Block& b, int g, Group32& to) {
  const ScaleMin packed = k_scale_min(b.scales, g);
  to.set_scale(f16_to_f32(b.d) * packed.scale, -f16_to_f32(b.dmin) * packed.min);
}
void read_group(const BlockQ4_K& b, int g, Group32& to) {
  clear_to(0, to.q);
  add_fields(b.qs + g / 2 * 32, g % 2 * 4, 4, 0, to.q);
  set_scale_min(b, g, to);
}
void read_group(const BlockQ5_K& b, int g, Group32& to) {
  clear_to(0, to.q);
  add_fields(b.qs + g / 2 * 32, g % 2 * 4, 4, 0, to.q);
  add_fields(b.qh, g, 1, 4, to.q);
  set_scale_min(b, g, to);
}
void read_group(const BlockQ6_K& b, int g, Group32& to) {
  clear_to(-32, to.q);
  add_fields(b.ql + g / 4 * 64 + g % 2 * 32, g / 2 % 2 * 4, 4, 0, to.q);
  add_fields(b.qh + g / 4 * 32, g % 4 * 2, 2, 4, to.q);
  to.set_scale(0);
  for (int half = 0; half < 2; ++half) to.scale[half] = f16_to_f32(b.d) * b.scales[2 * g + half];
}
void read_group(const BlockQ3_K& b, int g, Group32& to) {
  clear_to(-4, to.q);
  add_fields(b.qs + g / 4 * 32, g % 4 * 2, 2, 0, to.q);
  add_fields(b.hmask, g, 1, 2, to.q);
  to.set_scale(0);
  for (int half = 0; half < 2; ++half) {
    to.scale[half] = f16_to_f32(b.d) * static_cast<float>(q3_k_scale(b.scales, 2 * g + half));
  }
}
void read_group(const BlockQ2_K& b, int g, Group32& to) {
  clear_to(0, to.q);
  add_fields(b.qs + g / 4 * 32, g % 4 * 2, 2, 0, to.q);
  for (int half = 0; half < 2; ++half) {
    to.scale[half] = f16_to_f32(b.d) * static_cast<float>(b.scales[2 * g + half] & 15);
    to.min[half] = -f16_to_f32(b.dmin) * static_cast<float>(b.scales[2 * g + half] >> 4);
  }
}

template <class Block>
void blocks_to_f32(const std::byte* row, int64_t count, float* out) {
  constexpr int kGroups = Block::kElements / 32;
  const auto* block = reinterpret_cast<const Block*>(row);
  Group32 group;
  for (int64_t k = 0; k < count; k += Block::kElements, ++block) {
    for (int g = 0; g < kGroups; ++g, out += 32) {
      read_group(*block, g, group);
      for (int i = 0; i < 32; i += kLanes) {
        const F32Vec scale = broadcast(group.scale[i / 16]), min = broadcast(group.min[i / 16]);
        store(hn::MulAdd(load_i8(group.q + i), scale, min), out + i);
      }
    }
  }
}

// E4M3 numbers do not fit int8: a table maps each byte to its f32.
void f8_to_f32(const std::byte* row, int64_t count, float* out) {
  static const auto numbers = [] {
    std::array<float, 256> all;
    for (size_t q = 0; q < 256; ++q) all[q] = e4m3_to_f32(static_cast<uint8_t>(q));
    return all;
  }();
  const auto* block = reinterpret_cast<const BlockF8_E4M3*>(row);
  for (int64_t k = 0; k < count; k += 32, ++block) {
    for (int i = 0; i < 32; ++i) out[k + i] = block->d * numbers[block->qs[i]];
  }
}

template <DType dtype>
void plain_to_f32(const std::byte* row, int64_t count, float* out) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) store(load_plain<dtype>(row + k * kElementBytes<dtype>), out + k);
  if (k == count) return;
  alignas(64) float rest[kLanes];
  store(load_some<dtype>(row + k * kElementBytes<dtype>, count - k), rest);
  std::memcpy(out + k, rest, static_cast<size_t>(count - k) * sizeof(float));
}

// Converts `count` elements of a row, starting at a block boundary.
[[maybe_unused]] void row_to_f32(DType format, const std::byte* row, int64_t count, float* out) {
  switch (format) {
    case DType::F32:
      return plain_to_f32<DType::F32>(row, count, out);
    case DType::F16:
      return plain_to_f32<DType::F16>(row, count, out);
    case DType::BF16:
      return plain_to_f32<DType::BF16>(row, count, out);
    case DType::Q8_0:
      return blocks_to_f32<BlockQ8_0>(row, count, out);
    case DType::Q4_0:
      return blocks_to_f32<BlockQ4_0>(row, count, out);
    case DType::Q4_1:
      return blocks_to_f32<BlockQ4_1>(row, count, out);
    case DType::Q5_0:
      return blocks_to_f32<BlockQ5_0>(row, count, out);
    case DType::Q5_1:
      return blocks_to_f32<BlockQ5_1>(row, count, out);
    case DType::Q2_K:
      return blocks_to_f32<BlockQ2_K>(row, count, out);
    case DType::Q3_K:
      return blocks_to_f32<BlockQ3_K>(row, count, out);
    case DType::Q4_K:
      return blocks_to_f32<BlockQ4_K>(row, count, out);
    case DType::Q5_K:
      return blocks_to_f32<BlockQ5_K>(row, count, out);
    case DType::Q6_K:
      return blocks_to_f32<BlockQ6_K>(row, count, out);
    case DType::IQ4_NL:
      return blocks_to_f32<BlockIQ4_NL>(row, count, out);
    case DType::IQ4_XS:
      return blocks_to_f32<BlockIQ4_XS>(row, count, out);
    case DType::MXFP4:
      return blocks_to_f32<BlockMXFP4>(row, count, out);
    case DType::F8_E4M3:
      return f8_to_f32(row, count, out);
  }
  MR_ASSERT(!"a known format");
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_TO_F32_INL_H
