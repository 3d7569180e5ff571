// AMX products of int8: 32 rows of weights by up to 32 rows of x. While the tiles multiply, the sums of the preceding
// tiles are converted to f32. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/x86/amx_tiles-inl.h"
#include "kernels/linear/rows8/x86/stretch_x-inl.h"

// Integer sums of 32 rows of weights by `rows` rows of x over a part of k, and their destination.
struct alignas(64) IntegerSums {
  int32_t of[32][32];  // [row of x][row of weights]
  const float *w_scale = nullptr, *x_scale = nullptr;
  BlockSums* sums = nullptr;
  int64_t strip = 0, row = 0, rows = 0;
  bool first = false, last = false;  // first, last part of k

  // Adds rows [begin, end) of the sums to those of earlier parts, or writes them to y after the last part. This code is
  // interleaved with the products and must be short: the core looks only a few hundred instructions ahead for the next
  // product.
  MR_INLINE void settle(const LinearArgs& args, int64_t begin, int64_t end) const {
    if (begin >= end) return;
    if (last) return first ? write<true>(args, begin, end) : write<false>(args, begin, end);
    return first ? keep<true>(begin, end) : keep<false>(begin, end);
  }

 private:
  template <bool first>
  MR_INLINE __m512 scaled(int64_t r, int half, __m512 of_w) const {
    const __m512 fresh =
        _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(of[r] + 16 * half)), _mm512_set1_ps(x_scale[r]));
    if constexpr (first) return _mm512_mul_ps(fresh, of_w);
    return _mm512_fmadd_ps(fresh, of_w, _mm512_load_ps(sums->rows[r] + 16 * half));
  }

  template <bool first>
  __attribute__((noinline)) void keep(int64_t begin, int64_t end) const {
    const __m512 of_w[2] = {_mm512_load_ps(w_scale), _mm512_load_ps(w_scale + 16)};
    for (int64_t r = begin; r < end; ++r) {
      unrolled<2>([&](auto half)
                      MR_INLINE { _mm512_store_ps(sums->rows[r] + 16 * half, scaled<first>(r, half, of_w[half])); });
    }
  }

  template <bool first>
  __attribute__((noinline)) void write(const LinearArgs& args, int64_t begin, int64_t end) const {
    const __m512 of_w[2] = {_mm512_load_ps(w_scale), _mm512_load_ps(w_scale + 16)};
    const int64_t n = strip * kPackedRows;
    if (n + 32 > columns_of(args) || args.bias != nullptr) {
      for (int64_t r = begin; r < end; ++r) {
        unrolled<2>([&](auto half)
                        MR_INLINE { write_sixteen(args, row + r, n + 16 * half, scaled<first>(r, half, of_w[half])); });
      }
      return;
    }
    float* y = args.y.row<float>(row + begin) + n;
    for (int64_t r = begin; r < end; ++r, y += args.y.stride) {
      unrolled<2>([&](auto half) MR_INLINE {
        __m512 all = scaled<first>(r, half, of_w[half]);
        if (args.accumulate) all = _mm512_add_ps(all, _mm512_loadu_ps(y + 16 * half));
        _mm512_storeu_ps(y + 16 * half, all);
      });
    }
  }
};

// Operands of one step: 64 elements of 32 rows of weights and of x.
struct Operands {
  const int8_t (*w)[16][16][4];  // [tile]
  const int8_t (*x)[16][64];
};

// Tile registers 0 to 3 hold the results, 4 and 5 x, 6 and 7 weights. Each operand register is reloaded for the next
// step right after its last product.
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

// Multiplies steps [begin, end) of a stretch. The operands of the first step are already loaded; those of `after` are
// loaded at the end.
template <bool second>
__attribute__((noinline)) void multiply_steps(const LinearArgs& args, const WSuper& w, const XSuper& x, int64_t begin,
                                              int64_t end, const Operands& after, PanelAhead& ahead,
                                              const IntegerSums& before, IntegerSums& to) {
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
  store_tiles<second>(to.of);
}

constexpr size_t kInt8Bytes = kPanelSupers * sizeof(WSuper) + 2 * sizeof(IntegerSums) + kMostSums * sizeof(BlockSums);

// One piece of work. The results of each part of k are converted while the next part multiplies.
class Int8Piece {
 public:
  Int8Piece(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece)
      : args_(args),
        supers_(args.weights->k),
        x_(reinterpret_cast<const XSuper*>(x)),
        panel_(reinterpret_cast<WSuper*>(scratch)),
        maker_(*args.weights, piece, panel_),
        pending_(reinterpret_cast<IntegerSums*>(panel_ + kPanelSupers)),
        sums_(reinterpret_cast<BlockSums*>(pending_ + 2)),
        piece_(piece) {
    for (int i = 0; i < 2; ++i) new (pending_ + i) IntegerSums;
    pending_[0].w_scale = panel_->scale;  // readable placeholder: this entry has no rows
  }

  void run() {
    for (int64_t super = 0; super < supers_.count; super += kPanelSupers) {
      const int64_t super_end = std::min(super + kPanelSupers, supers_.count);
      BlockSums* sums = sums_;
      for (int64_t strip = piece_.strip_begin; strip < piece_.strip_end; strip += kInt8Strips) {
        settle();  // the pending sums use the scales in the panel, which fill() overwrites
        maker_.fill(super, super_end, strip);
        ahead_ = maker_.after(super, super_end, strip);
        load_operands(operands(super, super, piece_.m_begin, 0));
        for (int64_t row = piece_.m_begin; row < piece_.m_end; row += 32, ++sums) {
          multiply(super, super_end, strip, row, sums);
        }
      }
    }
    settle();
  }

 private:
  const XSuper& x_of(int64_t row, int64_t super) const { return x_[row / 32 * supers_.count + super]; }
  Operands operands(int64_t panel_begin, int64_t super, int64_t row, int64_t step) const {
    return {panel_[super - panel_begin].q[step], x_of(row, super).q[step]};
  }
  // Operands of the step after `step`: next step, next stretch or next rows; at the end any valid ones.
  Operands next(int64_t super, int64_t super_end, int64_t i, int64_t row, int64_t step) const {
    if (step < Supers::steps(supers_.size(i))) return operands(super, i, row, step);
    if (i + 1 < super_end) return operands(super, i + 1, row, 0);
    return operands(super, super, row + 32 < piece_.m_end ? row + 32 : row, 0);
  }

  void multiply(int64_t super, int64_t super_end, int64_t strip, int64_t row, BlockSums* sums) {
    const int64_t rows = std::min<int64_t>(32, piece_.m_end - row);
    for (int64_t i = super; i < super_end; ++i) {
      const XSuper& x = x_of(row, i);
      const WSuper& w = panel_[i - super];
      const int64_t steps = Supers::steps(supers_.size(i)), part = x.part_steps(rows);
      for (int64_t step = 0; step < steps; step += part) {
        IntegerSums& to = pending_[1 - at_];
        const int64_t end = std::min(step + part, steps);
        const Operands after = next(super, super_end, i, row, end);
        if (rows > 16) multiply_steps<true>(args_, w, x, step, end, after, ahead_, pending_[at_], to);
        if (rows <= 16) multiply_steps<false>(args_, w, x, step, end, after, ahead_, pending_[at_], to);
        to.w_scale = w.scale;
        to.x_scale = x.scale[step];
        to.sums = sums;
        to.strip = strip, to.row = row, to.rows = rows;
        to.first = i == 0 && step == 0;
        to.last = i + 1 == supers_.count && end == steps;
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
  const PanelMaker<false> maker_;
  IntegerSums* pending_;  // two: one being converted, one being computed
  BlockSums* sums_;
  PanelAhead ahead_;
  const Rows8Piece piece_;
  int at_ = 0;
};

void amx_int8_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const Tiles tiles;
  Int8Piece(args, x, scratch, piece).run();
}
