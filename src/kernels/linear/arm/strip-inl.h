// Packed weights straight from memory through registers, for up to four rows of x: decode and small batches.
// Included inside a target region, after Dot, which multiplies quads.

constexpr int64_t kPrefetchBytes = 1024;  // ahead of the block at hand

template <class Block>
inline void prefetch_after(const Block* block) {
  const auto* bytes = reinterpret_cast<const char*>(block) + kPrefetchBytes;
  for (size_t i = 0; i < sizeof(Block); i += 64) __builtin_prefetch(bytes + i, 0, 0);
}

// The dot products of quads [begin, begin + 4) of four rows of weights with 16 elements of x.
template <int begin>
inline int32x4_t dot_16(int32x4_t sum, const Weights& w, int8x16_t x) {
  sum = Dot::quad<0>(sum, w[begin], x);
  sum = Dot::quad<1>(sum, w[begin + 1], x);
  sum = Dot::quad<2>(sum, w[begin + 2], x);
  return Dot::quad<3>(sum, w[begin + 3], x);
}

template <class Format, int m>
inline void add_group(const typename Format::Block& block, int g, int half, const XBlock<m>& x, float32x4_t (&acc)[m]) {
  Weights w;
  Format::weights(block, g, half, w);
  float32x4_t scale[Format::kScales];
  for (int s = 0; s < Format::kScales; ++s) scale[s] = Format::scale(block, g, half, s);
  for (int r = 0; r < m; ++r) {
    const int8x16_t first = vld1q_s8(x.q[r]), second = vld1q_s8(x.q[r] + 16);
    const int32x4_t low = dot_16<0>(vdupq_n_s32(0), w, first);
    if constexpr (Format::kScales == 1) {
      const int32x4_t sum = dot_16<4>(low, w, second);
      acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(sum), vmulq_n_f32(scale[0], x.scale[r]));
    } else {
      const int32x4_t high = dot_16<4>(vdupq_n_s32(0), w, second);
      const float32x4_t both = vfmaq_f32(vmulq_f32(vcvtq_f32_s32(low), scale[0]), vcvtq_f32_s32(high), scale[1]);
      acc[r] = vfmaq_n_f32(acc[r], both, x.scale[r]);
    }
  }
  if constexpr (Format::kMins) {
    const float32x4_t min = Format::min(block, g, half, 0);
    for (int r = 0; r < m; ++r) acc[r] = vfmaq_n_f32(acc[r], min, x.sum[0][r]);
    if constexpr (Format::kScales == 2) {
      const float32x4_t more = vsubq_f32(Format::min(block, g, half, 1), min);
      for (int r = 0; r < m; ++r) acc[r] = vfmaq_n_f32(acc[r], more, x.sum[1][r]);
    }
  }
}

template <class Format, int m>
void multiply_strip(const LinearArgs& args, int64_t strip, int64_t m_begin, const XBlock<m>* x) {
  const int64_t blocks = args.weights->k / (32 * Format::kGroups);
  const auto* block = reinterpret_cast<const typename Format::Block*>(args.weights->data) + strip * blocks;
  float32x4_t acc[2][m];
  for (auto& half : acc) {
    for (auto& v : half) v = vdupq_n_f32(0);
  }
  for (int64_t b = 0; b < blocks; ++b, ++block) {
    prefetch_after(block);
    for (int g = 0; g < Format::kGroups; ++g, ++x) {
      for (int half = 0; half < 2; ++half) add_group<Format, m>(*block, g, half, *x, acc[half]);
    }
  }
  for (int half = 0; half < 2; ++half) {
    for (int r = 0; r < m; ++r) write_four(args, m_begin + r, strip * kPackedRows + 4 * half, acc[half][r], true);
  }
}

// Tiles of four rows of x, then one of the rest; a tile's place follows from its first row.
template <class Visit>
inline void for_x_tiles(int64_t m_begin, int64_t m_end, Visit visit) {
  int64_t m = m_begin;
  for (; m + 4 <= m_end; m += 4) visit(m, std::integral_constant<int, 4>());
  if (m_end - m == 3) visit(m, std::integral_constant<int, 3>());
  if (m_end - m == 2) visit(m, std::integral_constant<int, 2>());
  if (m_end - m == 1) visit(m, std::integral_constant<int, 1>());
}

template <int m, class Byte>
inline auto* x_tile(Byte* x, int64_t first_row, int64_t k) {
  static_assert(sizeof(XBlock<m>) == m * sizeof(XBlock<1>));
  using Tile = std::conditional_t<std::is_const_v<Byte>, const XBlock<m>, XBlock<m>>;
  return reinterpret_cast<Tile*>(x + static_cast<size_t>(first_row * (k / 32)) * sizeof(XBlock<1>));
}

size_t strip_x_bytes(int64_t m, int64_t k) { return static_cast<size_t>(m * (k / 32)) * sizeof(XBlock<1>); }

void quantize_for_strips(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  const float unit = unit_of(args.weights->format);
  for_x_tiles(m_begin, m_end, [&](int64_t row, auto rows) {
    quantize_tile<rows>(args.x, row, rows, unit, x_tile<rows>(x, row, args.x.cols));
  });
}

template <class Format>
void multiply_strips(const LinearArgs& args, const std::byte* x, const Rows8Piece& piece) {
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; ++strip) {
    for_x_tiles(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
      multiply_strip<Format, rows>(args, strip, row, x_tile<rows>(x, row, args.weights->k));
    });
  }
}

void strips(const LinearArgs& args, const std::byte* x, std::byte*, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { multiply_strips<decltype(format)>(args, x, piece); });
}
