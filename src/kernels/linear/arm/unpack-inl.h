// How each packed format becomes int8: for four of the eight rows (`half` says which) a group's 32 elements as eight
// vectors, each a quad of four rows, with f32 scales and mins of these rows. Included inside a target region.
//
// w = scale * unit * q + min. Where a zero point makes q signed, its bits are moved to the top of the byte, and the
// unit undoes the factor.

using Weights = int8x16_t[8];

inline uint8x16_t load_half(const Quad* rows, int half) { return vld1q_u8(rows[4 * half]); }

inline float32x4_t load_f16(const HalfOfRow& values, int half) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(values + 4 * half)));
}
template <class T>
inline uint64_t four_bytes(const T* bytes, int half) {
  uint32_t word;
  std::memcpy(&word, bytes + 4 * half, sizeof word);
  return word;
}
inline float32x4_t as_f32(uint8x8_t v) { return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(v)))); }
inline float32x4_t load_u8(const uint8_t* bytes, int half) { return as_f32(vcreate_u8(four_bytes(bytes, half))); }
inline float32x4_t load_s8(const int8_t* bytes, int half) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four_bytes(bytes, half))))));
}

inline void unsigned_nibbles(const Nibbles& nibbles, int half, Weights& w) {
  for (int j = 0; j < 4; ++j) {
    const uint8x16_t both = load_half(nibbles[j], half);
    w[j] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    w[j + 4] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  }
}

inline void top_nibbles(const Nibbles& nibbles, int half, Weights& w) {
  for (int j = 0; j < 4; ++j) {
    const uint8x16_t both = load_half(nibbles[j], half);
    w[j] = vreinterpretq_s8_u8(vshlq_n_u8(both, 4));
    w[j + 4] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(0xf0)));
  }
}

// visit(std::integral_constant<int, 0..7>()): shifts take their distance at compile time.
template <class Visit>
inline void for_quads(Visit visit) {
  visit(std::integral_constant<int, 0>());
  visit(std::integral_constant<int, 1>());
  visit(std::integral_constant<int, 2>());
  visit(std::integral_constant<int, 3>());
  visit(std::integral_constant<int, 4>());
  visit(std::integral_constant<int, 5>());
  visit(std::integral_constant<int, 6>());
  visit(std::integral_constant<int, 7>());
}

// The top bits from `high`, the next ones from the top of `low`.
template <int bits>
inline int8x16_t top_of(uint8x16_t high, int8x16_t low) {
  return vreinterpretq_s8_u8(vsriq_n_u8(high, vreinterpretq_u8_s8(low), bits));
}

inline void top_fives(const Nibbles& nibbles, const Ones& ones, int half, Weights& w) {
  top_nibbles(nibbles, half, w);
  const uint8x16_t high = load_half(ones, half);
  for_quads([&](auto quad) { w[quad] = top_of<1>(vshlq_n_u8(high, 7 - quad), w[quad]); });
}

inline void top_sixes(const Nibbles& nibbles, const Twos& twos, int half, Weights& w) {
  top_nibbles(nibbles, half, w);
  const uint8x16_t high[2] = {load_half(twos[0], half), load_half(twos[1], half)};
  for_quads([&](auto quad) { w[quad] = top_of<2>(vshlq_n_u8(high[quad / 4], 6 - quad % 4 * 2), w[quad]); });
}

inline void top_threes(const Twos& twos, const Ones& ones, int half, Weights& w) {
  const uint8x16_t high = load_half(ones, half), low[2] = {load_half(twos[0], half), load_half(twos[1], half)};
  for_quads([&](auto quad) {
    const uint8x16_t two = vandq_u8(vshlq_n_u8(low[quad / 4], 6 - quad % 4 * 2), vdupq_n_u8(0xc0));
    w[quad] = top_of<1>(vshlq_n_u8(high, 7 - quad), vreinterpretq_s8_u8(two));
  });
}

inline void unsigned_twos(const Twos& twos, int half, Weights& w) {
  const uint8x16_t both[2] = {load_half(twos[0], half), load_half(twos[1], half)};
  for_quads([&](auto quad) {
    constexpr int shift = quad % 4 * 2;
    const uint8x16_t field = shift == 0 ? both[quad / 4] : vshrq_n_u8(both[quad / 4], shift == 0 ? 1 : shift);
    w[quad] = vreinterpretq_s8_u8(vandq_u8(field, vdupq_n_u8(3)));
  });
}

inline void uneven_nibbles(const Nibbles& nibbles, int half, Weights& w) {
  const int8x16_t levels = vld1q_s8(kIq4Values.data());
  unsigned_nibbles(nibbles, half, w);
  for (auto& v : w) v = vqtbl1q_s8(levels, vreinterpretq_u8_s8(v));
}

struct UnpackQ8_0 {
  using Block = PackedQ8_0;
  static constexpr int kGroups = 1, kScales = 1;
  static constexpr bool kMins = false;
  static constexpr float kUnit = 1;
  static void weights(const Block& b, int, int half, Weights& w) {
    for (int j = 0; j < 8; ++j) w[j] = vld1q_s8(b.q[j][4 * half]);
  }
  static float32x4_t scale(const Block& b, int, int half, int) { return load_f16(b.d, half); }
};

struct UnpackQ4_0 {
  using Block = PackedQ4_0;
  static constexpr int kGroups = 1, kScales = 1;
  static constexpr bool kMins = false;
  static constexpr float kUnit = 1.0f / 16;
  static void weights(const Block& b, int, int half, Weights& w) { top_nibbles(b.nibbles, half, w); }
  static float32x4_t scale(const Block& b, int, int half, int) { return load_f16(b.d, half); }
};

struct UnpackQ4_1 {
  using Block = PackedQ4_1;
  static constexpr int kGroups = 1, kScales = 1;
  static constexpr bool kMins = true;
  static constexpr float kUnit = 1;
  static void weights(const Block& b, int, int half, Weights& w) { unsigned_nibbles(b.nibbles, half, w); }
  static float32x4_t scale(const Block& b, int, int half, int) { return load_f16(b.d, half); }
  static float32x4_t min(const Block& b, int, int half, int) { return load_f16(b.m, half); }
};

struct UnpackQ5_0 {
  using Block = PackedQ5_0;
  static constexpr int kGroups = 1, kScales = 1;
  static constexpr bool kMins = false;
  static constexpr float kUnit = 1.0f / 8;
  static void weights(const Block& b, int, int half, Weights& w) { top_fives(b.nibbles, b.ones, half, w); }
  static float32x4_t scale(const Block& b, int, int half, int) { return load_f16(b.d, half); }
};

struct UnpackQ5_1 {
  using Block = PackedQ5_1;
  static constexpr int kGroups = 1, kScales = 1;
  static constexpr bool kMins = true;
  static constexpr float kUnit = 1.0f / 8;
  static void weights(const Block& b, int, int half, Weights& w) { top_fives(b.nibbles, b.ones, half, w); }
  static float32x4_t scale(const Block& b, int, int half, int) { return load_f16(b.d, half); }
  static float32x4_t min(const Block& b, int, int half, int) {  // q is stored less 16
    return vfmaq_n_f32(load_f16(b.m, half), load_f16(b.d, half), 16);
  }
};

struct UnpackIQ4_NL {
  using Block = PackedQ4_0;
  static constexpr int kGroups = 1, kScales = 1;
  static constexpr bool kMins = false;
  static constexpr float kUnit = 1;
  static void weights(const Block& b, int, int half, Weights& w) { uneven_nibbles(b.nibbles, half, w); }
  static float32x4_t scale(const Block& b, int, int half, int) { return load_f16(b.d, half); }
};

struct UnpackIQ4_XS {
  using Block = PackedIQ4_XS;
  static constexpr int kGroups = 8, kScales = 1;
  static constexpr bool kMins = false;
  static constexpr float kUnit = 1;
  static void weights(const Block& b, int g, int half, Weights& w) { uneven_nibbles(b.groups[g].nibbles, half, w); }
  static float32x4_t scale(const Block& b, int g, int half, int) {
    return vmulq_f32(load_f16(b.d, half), load_s8(b.groups[g].scale, half));
  }
};

struct UnpackQ4_K {
  using Block = PackedQ4_K;
  static constexpr int kGroups = 8, kScales = 1;
  static constexpr bool kMins = true;
  static constexpr float kUnit = 1;
  static void weights(const Block& b, int g, int half, Weights& w) { unsigned_nibbles(b.groups[g].nibbles, half, w); }
  static float32x4_t scale(const Block& b, int g, int half, int) {
    return vmulq_f32(load_f16(b.d, half), load_u8(b.groups[g].scale, half));
  }
  static float32x4_t min(const Block& b, int g, int half, int) {
    return vmulq_f32(vnegq_f32(load_f16(b.dmin, half)), load_u8(b.groups[g].min, half));
  }
};

struct UnpackQ5_K {
  using Block = PackedQ5_K;
  static constexpr int kGroups = 8, kScales = 1;
  static constexpr bool kMins = true;
  static constexpr float kUnit = 1.0f / 8;
  static void weights(const Block& b, int g, int half, Weights& w) {
    top_fives(b.groups[g].nibbles, b.groups[g].ones, half, w);
  }
  static float32x4_t scale(const Block& b, int g, int half, int) {
    return vmulq_f32(load_f16(b.d, half), load_u8(b.groups[g].scale, half));
  }
  static float32x4_t min(const Block& b, int g, int half, int s) {  // q is stored less 16
    const float32x4_t shift = vmulq_n_f32(scale(b, g, half, s), 16);
    return vfmsq_f32(shift, load_f16(b.dmin, half), load_u8(b.groups[g].min, half));
  }
};

struct UnpackQ6_K {
  using Block = PackedQ6_K;
  static constexpr int kGroups = 8, kScales = 2;
  static constexpr bool kMins = false;
  static constexpr float kUnit = 1.0f / 4;
  static void weights(const Block& b, int g, int half, Weights& w) {
    top_sixes(b.groups[g].nibbles, b.groups[g].twos, half, w);
  }
  static float32x4_t scale(const Block& b, int g, int half, int s) {
    return vmulq_f32(load_f16(b.d, half), load_s8(b.groups[g].scale[s], half));
  }
};

struct UnpackQ3_K {
  using Block = PackedQ3_K;
  static constexpr int kGroups = 8, kScales = 2;
  static constexpr bool kMins = false;
  static constexpr float kUnit = 1.0f / 32;
  static void weights(const Block& b, int g, int half, Weights& w) {
    top_threes(b.groups[g].twos, b.groups[g].ones, half, w);
  }
  static float32x4_t scale(const Block& b, int g, int half, int s) {
    return vmulq_f32(load_f16(b.d, half), load_s8(b.groups[g].scale[s], half));
  }
};

struct UnpackQ2_K {
  using Block = PackedQ2_K;
  static constexpr int kGroups = 8, kScales = 2;
  static constexpr bool kMins = true;
  static constexpr float kUnit = 1;
  static void weights(const Block& b, int g, int half, Weights& w) { unsigned_twos(b.groups[g].twos, half, w); }
  static uint8x8_t scale_min(const Block& b, int g, int half, int s) {
    return vcreate_u8(four_bytes(b.groups[g].scale_min[s], half));
  }
  static float32x4_t scale(const Block& b, int g, int half, int s) {
    return vmulq_f32(load_f16(b.d, half), as_f32(vand_u8(scale_min(b, g, half, s), vdup_n_u8(15))));
  }
  static float32x4_t min(const Block& b, int g, int half, int s) {
    return vmulq_f32(vnegq_f32(load_f16(b.dmin, half)), as_f32(vshr_n_u8(scale_min(b, g, half, s), 4)));
  }
};

// visit(UnpackX()) for the format at hand.
template <class Visit>
inline void with_format(DType format, Visit visit) {
  switch (format) {
    case DType::Q8_0:
      return visit(UnpackQ8_0());
    case DType::Q4_0:
      return visit(UnpackQ4_0());
    case DType::Q4_1:
      return visit(UnpackQ4_1());
    case DType::Q5_0:
      return visit(UnpackQ5_0());
    case DType::Q5_1:
      return visit(UnpackQ5_1());
    case DType::Q2_K:
      return visit(UnpackQ2_K());
    case DType::Q3_K:
      return visit(UnpackQ3_K());
    case DType::Q4_K:
      return visit(UnpackQ4_K());
    case DType::Q5_K:
      return visit(UnpackQ5_K());
    case DType::Q6_K:
      return visit(UnpackQ6_K());
    case DType::IQ4_NL:
      return visit(UnpackIQ4_NL());
    case DType::IQ4_XS:
      return visit(UnpackIQ4_XS());
    default:
      assertion_failed("a packed format", __FILE__, __LINE__);
  }
}

inline float unit_of(DType format) {
  float unit = 1;
  with_format(format, [&](auto f) { unit = decltype(f)::kUnit; });
  return unit;
}
