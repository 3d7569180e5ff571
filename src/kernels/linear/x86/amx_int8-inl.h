// Panels for AMX tiles of int8: 32 rows of weights by up to 32 rows of x, both with a scale for up to 512 elements of a
// row. Tiles multiply while the sums of the tiles before them become f32. Included inside a target region.
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

// A stretch of two strips becomes a tile of a panel.
template <class Format>
__attribute__((noinline)) void requantize_strips(const LinearWeights& weights, int64_t strip, int64_t other,
                                                 const Supers& supers, int64_t super, int tile, WSuper& to) {
  using Block = typename Format::Block;
  const int64_t blocks = supers.groups / Format::kGroups;
  const auto* data = reinterpret_cast<const Block*>(weights.data);
  struct Place {
    const Block *a, *b;
    int g;
  };
  const auto place_of = [&](int64_t i) MR_INLINE {
    const int64_t group = supers.first(super) + i, block = group / Format::kGroups;
    return Place{data + strip * blocks + block, data + other * blocks + block,
                 static_cast<int>(group % Format::kGroups)};
  };
  const Requantizer<Format> requantizer(supers.size(super), place_of);
  _mm512_store_ps(to.scale + tile * 16, requantizer.step());
  for (int64_t i = 0; i < supers.size(super); ++i) {
    const Place at = place_of(i);
    const auto low = requantizer.affine(i, 0), high = requantizer.affine(i, Format::kScales - 1);
    auto* quads = to.q[i / 2][tile] + i % 2 * 8;
    unrolled<4>([&](auto j) MR_INLINE {
      const WideQuads q = wide_quads<Format, j>(*at.a, *at.b, at.g);
      _mm512_store_si512(quads[j], Requantizer<Format>::apply(low, q.low));
      _mm512_store_si512(quads[j + 4], Requantizer<Format>::apply(high, q.high));
    });
  }
}

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
  const float *w_scale = nullptr, *x_scale = nullptr;
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

// Tiles that are multiplied together: 64 elements of 32 rows of weights and of x.
struct Operands {
  const int8_t (*w)[16][16][4];  // [tile]
  const int8_t (*x)[16][64];
};

// Weights of the panel after this one, fetched into the L2 cache while the tiles of this one are multiplied: a core
// gets 11 GB/s from memory if it waits for each line where it is unpacked.
class PanelAhead {
 public:
  PanelAhead() = default;
  // `strips` stretches of `bytes` each, `stride` bytes apart, over so many steps.
  PanelAhead(const std::byte* first, int64_t strips, size_t bytes, size_t stride, int64_t steps)
      : at_(first), end_(first + bytes), bytes_(bytes), stride_(stride), strips_(strips) {
    const int64_t lines = strips * static_cast<int64_t>((bytes + 63) / 64);
    lines_a_step_ = Supers::ceil_div(lines, std::max<int64_t>(steps, 1));
  }

  MR_INLINE void step() {
    for (int64_t i = 0; i < lines_a_step_ && strips_ > 0; ++i) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      if (at_ < end_) continue;
      at_ = end_ + (stride_ - bytes_);
      end_ += stride_;
      --strips_;
    }
  }

 private:
  const std::byte *at_ = nullptr, *end_ = nullptr;
  size_t bytes_ = 0, stride_ = 0;
  int64_t strips_ = 0, lines_a_step_ = 0;
};

// Registers 0 to 3 hold the results, 4 and 5 x, 6 and 7 weights. Each of the latter is loaded again right after its
// last product, with what the step after this one takes.
MR_INLINE inline void load_operands(const Operands& from) {
  _tile_loadd(4, from.x[0], 64);
  _tile_loadd(7, from.w[1], 64);
  _tile_loadd(6, from.w[0], 64);
  _tile_loadd(5, from.x[1], 64);
}

template <bool second>
MR_INLINE inline void multiply_and_load(const Operands& next) {
  _tile_dpbssd(0, 4, 6);
  _tile_dpbssd(1, 4, 7);
  _tile_loadd(4, next.x[0], 64);
  if constexpr (second) _tile_dpbssd(3, 5, 7);
  _tile_loadd(7, next.w[1], 64);
  if constexpr (second) _tile_dpbssd(2, 5, 6);
  _tile_loadd(6, next.w[0], 64);
  if constexpr (second) _tile_loadd(5, next.x[1], 64);
}

// Steps [begin, end) of a stretch, the first of which is loaded already; `after` comes when they are done.
template <bool second>
MR_INLINE inline void multiply_steps(const LinearArgs& args, const WSuper& w, const XSuper& x, int64_t begin,
                                     int64_t end, const Operands& after, PanelAhead& ahead, const IntegerSums& before,
                                     IntegerSums& to) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const int64_t share = Supers::ceil_div(before.rows, end - begin);
  for (int64_t step = begin; step < end; ++step) {
    multiply_and_load<second>(step + 1 < end ? Operands{w.q[step + 1], x.q[step + 1]} : after);
    const int64_t done = (step - begin) * share;
    before.settle(args, done, std::min(done + share, before.rows));
    ahead.step();
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
constexpr size_t kInt8Bytes = kPanelSupers * sizeof(WSuper) + 2 * sizeof(IntegerSums) + kInt8Sums * sizeof(AmxSums);

// One piece of work: results of parts of k come out one after the other, each a part behind the products.
class Int8Piece {
 public:
  Int8Piece(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece)
      : args_(args),
        supers_(args.weights->k),
        x_(reinterpret_cast<const XSuper*>(x)),
        panel_(reinterpret_cast<WSuper*>(scratch)),
        pending_(reinterpret_cast<IntegerSums*>(panel_ + kPanelSupers)),
        sums_(reinterpret_cast<AmxSums*>(pending_ + 2)),
        piece_(piece) {
    for (int i = 0; i < 2; ++i) new (pending_ + i) IntegerSums;
    pending_[0].w_scale = panel_->scale;  // of no rows, but there to be loaded
  }

  void run() {
    for (int64_t super = 0; super < supers_.count; super += kPanelSupers) {
      const int64_t super_end = std::min(super + kPanelSupers, supers_.count);
      AmxSums* sums = sums_;
      for (int64_t strip = piece_.strip_begin; strip < piece_.strip_end; strip += kInt8Strips) {
        settle();  // its scales are in the panel
        fill_panel(super, super_end, strip, std::min(strip + kInt8Strips, piece_.strip_end));
        ahead_ = panel_after(super, super_end, strip);
        load_operands(operands(super, super, piece_.m_begin, 0));
        for (int64_t row = piece_.m_begin; row < piece_.m_end; row += 32, ++sums) {
          multiply(super, super_end, strip, row, sums);
        }
      }
    }
    settle();
  }

 private:
  void fill_panel(int64_t super, int64_t super_end, int64_t strip, int64_t strip_end) {
    with_format(args_.weights->format, [&](auto format) {
      for (int64_t s = strip; s < strip_end; s += 2) {
        const int64_t other = std::min(s + 1, strip_end - 1);  // an odd one out takes both places
        for (int64_t i = super; i < super_end; ++i) {
          requantize_strips<decltype(format)>(*args_.weights, s, other, supers_, i, static_cast<int>(s - strip) / 2,
                                              panel_[i - super]);
        }
      }
    });
    asm volatile("" ::: "memory");  // tiles are loaded behind the compiler's back
  }

  // The next strips of the same stretches, or the first ones of the stretches behind, or what comes after the piece.
  PanelAhead panel_after(int64_t super, int64_t super_end, int64_t strip) const {
    int64_t next = strip + kInt8Strips, from = super;
    if (next >= piece_.strip_end) {
      from = super_end < supers_.count ? super_end : 0;
      next = from > 0 ? piece_.strip_begin : piece_.strip_after;
    }
    const auto& weights = *args_.weights;
    const size_t stride =
        packed_block_bytes(weights.format) * static_cast<size_t>(weights.k / info(weights.format).block);
    const auto place = [&](int64_t i) {
      return stride * static_cast<size_t>(std::min(supers_.first(i), supers_.groups)) /
             static_cast<size_t>(supers_.groups);
    };
    const int64_t strips = Supers::ceil_div(weights.n, kPackedRows) - next;
    const int64_t rows = Supers::ceil_div(piece_.m_end - piece_.m_begin, 32);
    const int64_t steps = rows * Supers::steps(std::min(kPanelSupers * supers_.each, supers_.groups));
    return {weights.data + static_cast<size_t>(next) * stride + place(from),
            std::clamp<int64_t>(strips, 0, kInt8Strips), place(from + kPanelSupers) - place(from), stride, steps};
  }

  const XSuper& x_of(int64_t row, int64_t super) const { return x_[row / 32 * supers_.count + super]; }
  Operands operands(int64_t panel_begin, int64_t super, int64_t row, int64_t step) const {
    return {panel_[super - panel_begin].q[step], x_of(row, super).q[step]};
  }
  // What follows step `step` of a stretch: the next one, the next stretch or row, and at the end anything.
  Operands next(int64_t super, int64_t super_end, int64_t i, int64_t row, int64_t step) const {
    if (step < Supers::steps(supers_.size(i))) return operands(super, i, row, step);
    if (i + 1 < super_end) return operands(super, i + 1, row, 0);
    return operands(super, super, row + 32 < piece_.m_end ? row + 32 : row, 0);
  }

  void multiply(int64_t super, int64_t super_end, int64_t strip, int64_t row, AmxSums* sums) {
    const int64_t rows = std::min<int64_t>(32, piece_.m_end - row);
    for (int64_t i = super; i < super_end; ++i) {
      const XSuper& x = x_of(row, i);
      const WSuper& w = panel_[i - super];
      const int64_t steps = Supers::steps(supers_.size(i)), part = x.part_steps(steps);
      for (int64_t step = 0; step < steps; step += part) {
        IntegerSums& to = pending_[1 - at_];
        const Operands after = next(super, super_end, i, row, step + part);
        if (rows > 16) multiply_steps<true>(args_, w, x, step, step + part, after, ahead_, pending_[at_], to);
        if (rows <= 16) multiply_steps<false>(args_, w, x, step, step + part, after, ahead_, pending_[at_], to);
        to.w_scale = w.scale;
        to.x_scale = x.scale[step / part];
        to.sums = sums;
        to.strip = strip, to.row = row, to.rows = rows;
        to.first = i == 0 && step == 0;
        to.last = i + 1 == supers_.count && step + part == steps;
        at_ = 1 - at_;
      }
    }
  }

  void settle() {
    pending_[at_].settle(args_, 0, pending_[at_].rows);
    pending_[at_].rows = 0;
  }

  const LinearArgs& args_;
  const Supers supers_;
  const XSuper* x_;
  WSuper* panel_;
  IntegerSums* pending_;  // two: one that settles, one that is being made
  AmxSums* sums_;
  PanelAhead ahead_;
  const Rows8Piece piece_;
  int at_ = 0;
};

void amx_int8_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const Tiles tiles;
  Int8Piece(args, x, scratch, piece).run();
}
