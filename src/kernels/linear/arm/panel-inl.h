// Prompts and larger batches: a panel of weights is unpacked to int8 with f32 scales once, stays in the L1 cache, and
// all rows of x pass over it. One micro-kernel serves every format. Included inside a target region, after Dot.

constexpr int64_t kPanelStrips = 2;   // of eight rows
constexpr int64_t kPanelGroups = 64;  // of 32 elements: with two strips about 40 KB

template <int scales, bool mins>
struct PanelGroup {
  float scale[scales][kPackedRows];
  float min[mins ? scales : 0][kPackedRows];  // the second one less the first
  int8_t q[8][kPackedRows][4];
};
constexpr size_t kPanelBytes = kPanelStrips * kPanelGroups * sizeof(PanelGroup<2, true>);

template <class Format>
using PanelOf = PanelGroup<Format::kScales, Format::kMins>;

template <class Format>
inline void unpack_group(const typename Format::Block& block, int g, PanelOf<Format>& to) {
  for (int half = 0; half < 2; ++half) {
    Weights w;
    Format::weights(block, g, half, w);
    for (int j = 0; j < 8; ++j) vst1q_s8(to.q[j][4 * half], w[j]);
    for (int s = 0; s < Format::kScales; ++s) vst1q_f32(to.scale[s] + 4 * half, Format::scale(block, g, half, s));
    if constexpr (Format::kMins) {
      const float32x4_t min = Format::min(block, g, half, 0);
      vst1q_f32(to.min[0] + 4 * half, min);
      if constexpr (Format::kScales == 2)
        vst1q_f32(to.min[1] + 4 * half, vsubq_f32(Format::min(block, g, half, 1), min));
    }
  }
}

template <int m, int quad>
inline void dot_quads(const int8_t (&q)[8][kPackedRows][4], const int8x16_t (&x)[m], int32x4_t (&sums)[2][m]) {
  const int8x16_t low = vld1q_s8(q[quad][0]), high = vld1q_s8(q[quad][4]);
  for (int r = 0; r < m; ++r) {
    sums[0][r] = Dot::quad<quad % 4>(sums[0][r], low, x[r]);
    sums[1][r] = Dot::quad<quad % 4>(sums[1][r], high, x[r]);
  }
}

// Sixteen elements from `first_quad` on.
template <int m, int first_quad>
inline void dot_sixteen(const int8_t (&q)[8][kPackedRows][4], const XBlock<4>& x, int32x4_t (&sums)[2][m]) {
  int8x16_t xs[m];
  for (int r = 0; r < m; ++r) xs[r] = vld1q_s8(x.q[r] + 4 * first_quad);
  dot_quads<m, first_quad>(q, xs, sums);
  dot_quads<m, first_quad + 1>(q, xs, sums);
  dot_quads<m, first_quad + 2>(q, xs, sums);
  dot_quads<m, first_quad + 3>(q, xs, sums);
}

template <int m>
inline void add_scaled(int32x4_t (&sums)[2][m], const float* scale, const XBlock<4>& x, float32x4_t (&acc)[2][m]) {
  for (int half = 0; half < 2; ++half) {
    const float32x4_t w = vld1q_f32(scale + 4 * half);
    for (int r = 0; r < m; ++r) {
      acc[half][r] = vfmaq_f32(acc[half][r], vcvtq_f32_s32(sums[half][r]), vmulq_n_f32(w, x.scale[r]));
      sums[half][r] = vdupq_n_s32(0);
    }
  }
}

// Eight rows of weights, m rows of x.
template <int m, int scales, bool mins>
inline void panel_tile(const PanelGroup<scales, mins>* w, int64_t groups, const XBlock<4>* x,
                       float32x4_t (&acc)[2][m]) {
  int32x4_t sums[2][m];
  for (int r = 0; r < m; ++r) {
    sums[0][r] = sums[1][r] = vdupq_n_s32(0);
    acc[0][r] = acc[1][r] = vdupq_n_f32(0);
  }
  for (int64_t g = 0; g < groups; ++g, ++w, ++x) {
    dot_sixteen<m, 0>(w->q, *x, sums);
    if constexpr (scales == 2) add_scaled<m>(sums, w->scale[0], *x, acc);
    dot_sixteen<m, 4>(w->q, *x, sums);
    add_scaled<m>(sums, w->scale[scales - 1], *x, acc);
    for (int s = 0; s < (mins ? scales : 0); ++s) {
      for (int half = 0; half < 2; ++half) {
        const float32x4_t min = vld1q_f32(w->min[s] + 4 * half);
        for (int r = 0; r < m; ++r) acc[half][r] = vfmaq_n_f32(acc[half][r], min, x->sum[s][r]);
      }
    }
  }
}

struct Stretch {  // of k, in groups of 32
  int64_t first, count;
};

template <int scales, bool mins, int m>
void multiply_panel_tile(const LinearArgs& args, const PanelGroup<scales, mins>* panel, const XBlock<4>* x,
                         Stretch stretch, int64_t strip, int64_t row) {
  float32x4_t acc[2][m];
  panel_tile<m>(panel, stretch.count, x + stretch.first, acc);
  for (int r = 0; r < m; ++r) {
    for (int half = 0; half < 2; ++half) {
      write_four(args, row + r, strip * kPackedRows + 4 * half, acc[half][r], stretch.first == 0);
    }
  }
}

template <class Format>
void unpack_panel(const LinearWeights& weights, Stretch stretch, int64_t strip_begin, int64_t strip_end,
                  PanelOf<Format>* panel) {
  const int64_t blocks = weights.k / (32 * Format::kGroups);
  for (int64_t strip = strip_begin; strip < strip_end; ++strip, panel += kPanelGroups) {
    const auto* block = reinterpret_cast<const typename Format::Block*>(weights.data) + strip * blocks +
                        stretch.first / Format::kGroups;
    for (int64_t i = 0; i < stretch.count; ++block) {
      prefetch_after(block);
      for (int g = 0; g < Format::kGroups; ++g, ++i) unpack_group<Format>(*block, g, panel[i]);
    }
  }
}

template <class Format>
void multiply_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const int64_t groups = args.weights->k / 32;
  auto* panel = reinterpret_cast<PanelOf<Format>*>(scratch);
  for (int64_t strip = piece.strip_begin; strip < piece.strip_end; strip += kPanelStrips) {
    const int64_t strip_end = std::min(strip + kPanelStrips, piece.strip_end);
    for (Stretch stretch{0, 0}; stretch.first < groups; stretch.first += kPanelGroups) {
      stretch.count = std::min(kPanelGroups, groups - stretch.first);
      unpack_panel<Format>(*args.weights, stretch, strip, strip_end, panel);
      for_x_tiles(piece.m_begin, piece.m_end, [&](int64_t row, auto rows) {
        const auto* tile = reinterpret_cast<const XBlock<4>*>(x) + row / 4 * groups;
        for (int64_t s = strip; s < strip_end; ++s) {
          multiply_panel_tile<Format::kScales, Format::kMins, rows>(args, panel + (s - strip) * kPanelGroups, tile,
                                                                    stretch, s, row);
        }
      });
    }
  }
}

size_t panel_x_bytes(int64_t m, int64_t k) { return static_cast<size_t>((m + 3) / 4 * (k / 32)) * sizeof(XBlock<4>); }

void quantize_for_panels(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* x) {
  const float unit = unit_of(args.weights->format);
  for (int64_t m = m_begin; m < m_end; m += 4) {
    auto* tile = reinterpret_cast<XBlock<4>*>(x) + m / 4 * (args.x.cols / 32);
    quantize_tile<4>(args.x, m, std::min<int64_t>(4, m_end - m), unit, tile);
  }
}

void panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  with_format(args.weights->format, [&](auto format) { multiply_panels<decltype(format)>(args, x, scratch, piece); });
}
