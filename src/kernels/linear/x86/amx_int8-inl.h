// Panels for AMX tiles of int8: 32 rows of weights by up to 32 rows of x, both with a scale for up to 256 elements of a
// row. A step of tiles keeps the matrix unit busy for 64 cycles and takes a dozen instructions; in between the sums of
// the tiles before become f32, and the next panel of weights is made. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/tiles-inl.h"
#include "kernels/linear/rows8/tuned.h"
#include "kernels/linear/x86/amx_tiles-inl.h"
#include "kernels/linear/x86/requantize-inl.h"

constexpr int kSuperSteps = kSuperGroups / 2;  // an instruction takes 64 elements

// How a row is cut into stretches of one scale each, all about equally long.
struct Supers {
  int64_t groups, each, count;  // groups of 32 in all, in a stretch; stretches

  explicit Supers(int64_t k)
      : groups(k / 32),
        each(2 * ceil_div(steps(groups), ceil_div(steps(groups), kSuperSteps))),
        count(ceil_div(groups, each)) {}
  static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
  static int64_t steps(int64_t groups) { return ceil_div(groups, 2); }
  int64_t first(int64_t super) const { return super * each; }
  int64_t size(int64_t super) const { return std::min(each, groups - first(super)); }
};

struct alignas(64) WSuper {
  int8_t q[kSuperSteps][2][16][16][4];  // [step][tile][quad][row]
  float scale[32];
};

struct alignas(64) XSuper {
  int8_t q[kSuperSteps][2][16][64];  // [step][tile][row]
  float scale[kSuperSteps][32];      // of the parts
  int64_t parts;                     // 1, or as many as there are steps

  int64_t part_steps(int64_t steps) const { return parts == 1 ? steps : 1; }
};

// A panel: 32 rows of weights, some stretches. Made group by group, whenever there is time.
class PanelFiller {
 public:
  PanelFiller(const LinearWeights& weights, const Supers& supers) : weights_(weights), supers_(supers) {
    with_format(weights.format, [&](auto format) {
      scan_ = scan_stretch<decltype(format)>;
      requantize_ = requantize_group<decltype(format)>;
    });
  }

  void begin(int64_t super, int64_t super_end, int64_t strip, int64_t strip_end, WSuper* panel) {
    super_begin_ = super_ = super, super_end_ = super_end;
    strip_begin_ = strip_ = strip, strip_end_ = strip_end;
    group_ = 0;
    panel_ = panel;
  }

  void advance(int64_t groups) {
    for (; groups > 0 && strip_ < strip_end_; --groups) {
      WSuper& to = panel_[super_ - super_begin_];
      const int64_t first = supers_.first(super_), which = strip_ - strip_begin_;
      if (group_ == 0) scan_(weights_, strip_, first, supers_.size(super_), scales_, to.scale + which * kPackedRows);
      auto* quads = to.q[group_ / 2][which / 2] + group_ % 2 * 8;
      requantize_(weights_, strip_, first, group_, scales_, quads[0][which % 2 * kPackedRows], sizeof *quads);
      if (++group_ < supers_.size(super_)) continue;
      group_ = 0;
      if (++super_ < super_end_) continue;
      super_ = super_begin_;
      ++strip_;
    }
  }
  void finish() {
    advance(INT64_MAX);
    asm volatile("" ::: "memory");  // tiles are loaded behind the compiler's back
  }

 private:
  const LinearWeights& weights_;
  const Supers& supers_;
  decltype(&scan_stretch<UnpackQ8_0>) scan_ = nullptr;
  decltype(&requantize_group<UnpackQ8_0>) requantize_ = nullptr;
  StretchScales scales_;
  WSuper* panel_ = nullptr;
  int64_t super_begin_ = 0, super_end_ = 0, strip_begin_ = 0, strip_end_ = 0;
  int64_t strip_ = 0, super_ = 0, group_ = 0;  // what comes next
};

// The largest of up to 64 elements; NaN if one of them is.
MR_INLINE inline float largest_of(const float* x, int64_t count) {
  __m512 most = _mm512_setzero_ps();
  __mmask16 nan = 0;
  for (int64_t i = 0; i < count; i += 16) {
    const __m512 v = _mm512_loadu_ps(x + i);
    nan |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    most = _mm512_max_ps(most, _mm512_abs_ps(v));
  }
  return nan != 0 ? __builtin_nanf("") : _mm512_reduce_max_ps(most);
}

// One scale for a stretch of x is enough unless some part of a row is so much larger than the others that they would
// lose more than half of their precision to it.
constexpr float kUneven = 2.5f;  // how much less rounding error, in squares, parts must promise

struct PartsOfRows {
  int64_t parts;
  float largest[32][kSuperSteps];

  // Whether rows have parts depends on all rows of a tile, unless they must not depend on each other: then all have.
  PartsOfRows(const LinearArgs& args, int64_t row, int64_t rows, int64_t first, int64_t size) {
    const int64_t all = Supers::steps(size);
    bool even = !args.invariant;
    for (int64_t r = 0; r < rows; ++r) {
      float most = 0, squares = 0;
      for (int64_t part = 0; part < all; ++part) {
        const int64_t group = 2 * part;
        const float found =
            largest_of(args.x.row<float>(row + r) + 32 * (first + group), 32 * std::min<int64_t>(2, size - group));
        largest[r][part] = found;
        squares += found * found;
        most = std::max(most, found);
      }
      even = even && static_cast<float>(all) * most * most <= kUneven * squares;
      whole_[r] = most;
    }
    parts = even ? 1 : all;
  }
  float largest_in(int64_t r, int64_t part) const { return parts == 1 ? whole_[r] : largest[r][part]; }

 private:
  float whole_[32];
};

// 64 elements of a row, or 32 and zeros.
MR_INLINE inline void round_64(const float* x, int64_t count, float inverse, int8_t* to) {
  for (int64_t i = 0; i < 64; i += 16) {
    const __m512 v = i < count ? _mm512_loadu_ps(x + i) : _mm512_setzero_ps();
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v, _mm512_set1_ps(inverse)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtsepi32_epi8(q));
  }
}

void quantize_super(const LinearArgs& args, int64_t m, int64_t rows, int64_t first, int64_t size, XSuper& to) {
  const PartsOfRows found(args, m, rows, first, size);
  to.parts = found.parts;
  for (int64_t r = 0; r < 32; ++r) {
    for (int64_t step = 0; step < Supers::steps(size); ++step) {
      const bool exists = r < rows;
      const float largest = exists ? found.largest_in(r, step) : 0;
      const int64_t count = exists ? 32 * std::min<int64_t>(2, size - 2 * step) : 0;
      to.scale[to.parts == 1 ? 0 : step][r] = largest * (1 / 127.0f);
      round_64(args.x.row<float>(exists ? m + r : m) + 32 * (first + 2 * step), count,
               largest > 0 ? 127 / largest : 0.0f, to.q[step][r / 16][r % 16]);
    }
  }
}

void quantize_for_int8(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const Supers supers(args.x.cols);
  for (int64_t m = m_begin; m < m_end; m += 32) {
    auto* tile = reinterpret_cast<XSuper*>(out) + m / 32 * supers.count;
    for (int64_t i = 0; i < supers.count; ++i) {
      quantize_super(args, m, std::min<int64_t>(32, m_end - m), supers.first(i), supers.size(i), tile[i]);
    }
  }
}

size_t int8_x_bytes(int64_t m, int64_t k) {
  return static_cast<size_t>((m + 31) / 32 * Supers(k).count) * sizeof(XSuper);
}

// Integer sums of 32 rows of weights by `rows` rows of x over a part of k, and where they go.
struct alignas(64) IntegerSums {
  int32_t tiles[2][2][16][16];  // [tile of x][tile of weights]
  float w_scale[32];            // a copy: the panel may be gone by then
  const float* x_scale = nullptr;
  AmxSums* sums = nullptr;
  int64_t strip = 0, row = 0, rows = 0;
  bool first = false, last = false;  // part of k

  // Rows [begin, end) of the sums are added to those of earlier parts, or written to y if there are no more.
  MR_INLINE void settle(const LinearArgs& args, int64_t begin, int64_t end) const {
    const __m512 of_w[2] = {_mm512_loadu_ps(w_scale), _mm512_loadu_ps(w_scale + 16)};
    for (int64_t r = begin; r < end; ++r) {
      const __m512 of_x = _mm512_set1_ps(x_scale[r]);
      unrolled<2>([&](auto i) MR_INLINE {
        float* sum = sums->tiles[r / 16][i][r % 16];
        const __m512 fresh = _mm512_cvtepi32_ps(_mm512_load_si512(tiles[r / 16][i][r % 16]));
        const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(sum);
        const __m512 all = _mm512_fmadd_ps(_mm512_mul_ps(fresh, of_x), of_w[i], before);
        if (last) write_sixteen(args, row + r, (strip + 2 * i) * kPackedRows, all);
        if (!last) _mm512_store_ps(sum, all);
      });
    }
  }
};

// Two tiles on their way to the L1 cache.
MR_INLINE inline void fetch(const int8_t (&tiles)[2][16][64]) {
  unrolled<32>([&](auto row) MR_INLINE { __builtin_prefetch(tiles[row / 16][row % 16], 0, 3); });
}

// Registers 0 to 3 hold the results, 4 and 5 x, 6 and 7 weights. `between(i, step)` comes after the i-th step.
template <bool second, class Between>
MR_INLINE inline void multiply_steps(const WSuper& w, const XSuper& x, int64_t begin, int64_t end, IntegerSums& to,
                                     const Between& between) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = begin; step < end; ++step) {
    _tile_loadd(6, w.q[step][0], 64);
    _tile_loadd(4, x.q[step][0], 64);
    _tile_loadd(7, w.q[step][1], 64);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    if constexpr (second) {
      _tile_loadd(5, x.q[step][1], 64);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    between(step - begin, step);
  }
  _tile_stored(0, to.tiles[0][0], 64);
  _tile_stored(1, to.tiles[0][1], 64);
  if constexpr (second) {
    _tile_stored(2, to.tiles[1][0], 64);
    _tile_stored(3, to.tiles[1][1], 64);
  }
}

constexpr int64_t kPanelSupers = MR_AMX_SUPERS;
constexpr int64_t kInt8Strips = 4;
constexpr int64_t kInt8Sums = kMostPanels * (MR_PANEL_ROWS + 31) / 32;  // of one piece of work
constexpr size_t kInt8Bytes = 2 * kPanelSupers * sizeof(WSuper) + 2 * sizeof(IntegerSums) + kInt8Sums * sizeof(AmxSums);

// One piece of work. Sums settle one part of k behind the products, panels are made one ahead of them.
class Int8Piece {
 public:
  Int8Piece(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece)
      : args_(args),
        supers_(args.weights->k),
        filler_(*args.weights, supers_),
        x_(reinterpret_cast<const XSuper*>(x)),
        panels_(reinterpret_cast<WSuper*>(scratch)),
        sums_(reinterpret_cast<AmxSums*>(panels_ + 2 * kPanelSupers)),
        all_sums_(reinterpret_cast<IntegerSums*>(sums_ + kInt8Sums)),
        piece_(piece) {
    for (int i = 0; i < 2; ++i) new (all_sums_ + i) IntegerSums;
  }

  void run() {
    begin_panel({0, piece_.strip_begin}, panels_);
    WSuper *panel = panels_, *other = panels_ + kPanelSupers;
    AmxSums* sums = sums_;
    for (Place at{0, piece_.strip_begin}; at.super < supers_.count; at = next(at), std::swap(panel, other)) {
      filler_.finish();
      begin_panel(next(at), other);
      if (at.strip == piece_.strip_begin) sums = sums_;
      for (int64_t row = piece_.m_begin; row < piece_.m_end; row += 32, ++sums) multiply(at, panel, row, sums);
    }
    IntegerSums& last = all_sums_[fresh_];
    last.settle(args_, 0, last.rows);
  }

 private:
  struct Place {  // of a panel
    int64_t super, strip;
  };
  // Stretches of k go outermost, so that x of one stretch stays in the L2 cache while all strips pass.
  Place next(Place at) const {
    if (at.strip + kInt8Strips < piece_.strip_end) return {at.super, at.strip + kInt8Strips};
    return {at.super + kPanelSupers, piece_.strip_begin};
  }
  int64_t super_end(Place at) const { return std::min(at.super + kPanelSupers, supers_.count); }
  const XSuper& x_of(int64_t row, int64_t super) const { return x_[row / 32 * supers_.count + super]; }

  // After the last one there is nothing left to fill.
  void begin_panel(Place at, WSuper* panel) {
    if (at.super >= supers_.count) return filler_.begin(0, 1, 0, 0, panel);
    filler_.begin(at.super, super_end(at), at.strip, std::min(at.strip + kInt8Strips, piece_.strip_end), panel);
    // A step of k takes two groups of each strip, and comes once for every tile of x.
    groups_a_step_ = Supers::ceil_div(2 * kInt8Strips, Supers::ceil_div(piece_.m_end - piece_.m_begin, 32));
  }

  void multiply(Place at, const WSuper* panel, int64_t row, AmxSums* sums) {
    const int64_t rows = std::min<int64_t>(32, piece_.m_end - row);
    for (int64_t i = at.super; i < super_end(at); ++i) {
      const XSuper& x = x_of(row, i);
      const XSuper& next_x = i + 1 < super_end(at)
                                 ? x_of(row, i + 1)
                                 : x_of(row + 32 < piece_.m_end ? row + 32 : piece_.m_begin, at.super);
      const WSuper& w = panel[i - at.super];
      const int64_t steps = Supers::steps(supers_.size(i)), part = x.part_steps(steps);
      for (int64_t step = 0; step < steps; step += part) {
        const IntegerSums& before = all_sums_[fresh_];
        const int64_t share = Supers::ceil_div(before.rows, part);
        const auto between = [&](int64_t done, int64_t at_step) MR_INLINE {
          if constexpr (MR_AMX_AHEAD != 0) fetch(next_x.q[at_step]);
          before.settle(args_, std::min(done * share, before.rows), std::min((done + 1) * share, before.rows));
          filler_.advance(groups_a_step_);
        };
        IntegerSums& to = all_sums_[1 - fresh_];
        if (rows > 16) multiply_steps<true>(w, x, step, step + part, to, between);
        if (rows <= 16) multiply_steps<false>(w, x, step, step + part, to, between);
        std::copy_n(w.scale, 32, to.w_scale);
        to.x_scale = x.scale[step / part];
        to.sums = sums;
        to.strip = at.strip, to.row = row, to.rows = rows;
        to.first = i == 0 && step == 0;
        to.last = i + 1 == supers_.count && step + part == steps;
        fresh_ = 1 - fresh_;
      }
    }
  }

  const LinearArgs& args_;
  const Supers supers_;
  PanelFiller filler_;
  const XSuper* x_;
  WSuper* panels_;  // two: one that is multiplied, one that is being made
  AmxSums* sums_;
  IntegerSums* all_sums_;  // two: one that settles, one that is being made
  const Rows8Piece piece_;
  int fresh_ = 0;
  int64_t groups_a_step_ = 0;
};

void amx_int8_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const Tiles tiles;
  Int8Piece(args, x, scratch, piece).run();
}
