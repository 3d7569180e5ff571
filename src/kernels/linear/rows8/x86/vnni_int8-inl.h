// int8 products in 512-bit registers: 32 rows of weights by eight rows of x, over a part of a stretch with one scale.
// Included inside a target region.
#pragma once

#include "kernels/linear/rows8/x86/block_sums-inl.h"
#include "kernels/linear/rows8/x86/stretch_x-inl.h"

constexpr int kVnniRows = 8;

// Multiplies steps [begin, end) of a stretch with the rows of x from `row` on. The weights have an offset of 128; the
// initial sums subtract its contribution.
MR_INLINE inline void multiply_eight(const WSuper& w, const XSuper& x, int64_t begin, int64_t end, int64_t row,
                                     __m512i (&sums)[2][kVnniRows]) {
  unrolled<kVnniRows>([&](auto r) MR_INLINE {
    int32_t of_x = 0;
    for (int64_t step = begin; step < end; ++step) of_x += x.sum[step][row + r];
    sums[0][r] = sums[1][r] = _mm512_set1_epi32(-128 * of_x);
  });
  for (int64_t step = begin; step < end; ++step) {
    const auto* rows = x.q[step][row / 16] + row % 16;
    unrolled<16>([&](auto quad) MR_INLINE {
      const __m512i low = _mm512_load_si512(w.q[step][0][quad]), high = _mm512_load_si512(w.q[step][1][quad]);
      unrolled<kVnniRows>([&](auto r) MR_INLINE {
        const __m512i of_x = broadcast_quad_512(rows[r] + 4 * quad);
        sums[0][r] = _mm512_dpbusd_epi32(sums[0][r], low, of_x);
        sums[1][r] = _mm512_dpbusd_epi32(sums[1][r], high, of_x);
      });
    });
  }
}

// Scales the integer sums of a part and adds them to the results of earlier parts, if any.
MR_INLINE inline void settle_eight(const __m512i (&sums)[2][kVnniRows], const float* w_scale, const float* x_scale,
                                   int64_t row, bool first, BlockSums& to) {
  unrolled<2>([&](auto half) MR_INLINE {
    const __m512 of_w = _mm512_load_ps(w_scale + 16 * half);
    unrolled<kVnniRows>([&](auto r) MR_INLINE {
      float* sum = to.rows[row + r] + 16 * half;
      const __m512 fresh = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[half][r]), _mm512_set1_ps(x_scale[row + r]));
      _mm512_store_ps(sum, _mm512_fmadd_ps(fresh, of_w, first ? _mm512_setzero_ps() : _mm512_load_ps(sum)));
    });
  });
}

// One stretch of 32 rows of weights by up to 32 rows of x.
__attribute__((noinline)) void multiply_stretch(const WSuper& w, const XSuper& x, int64_t steps, int64_t rows,
                                                bool first, PanelAhead& ahead, BlockSums& to) {
  const int64_t part = std::min(x.part_steps(rows), steps);
  for (int64_t row = 0; row < rows; row += kVnniRows) {
    for (int64_t step = 0; step < steps; step += part) {
      __m512i sums[2][kVnniRows];
      multiply_eight(w, x, step, std::min(step + part, steps), row, sums);
      settle_eight(sums, w.scale, x.scale[step], row, first && step == 0, to);
      ahead.step();
    }
  }
}

constexpr size_t kVnniBytes = sizeof(WSuper) + kMostSums * sizeof(BlockSums);

void vnni_int8_panels(const LinearArgs& args, const std::byte* x, std::byte* scratch, const Rows8Piece& piece) {
  const Supers supers(args.weights->k);
  auto* panel = reinterpret_cast<WSuper*>(scratch);
  const PanelMaker<true> maker(*args.weights, piece, panel);
  for (int64_t super = 0; super < supers.count; ++super) {
    auto* sums = reinterpret_cast<BlockSums*>(panel + 1);
    for (int64_t strip = piece.strip_begin; strip < piece.strip_end; strip += kInt8Strips) {
      maker.fill(super, super + 1, strip);
      PanelAhead ahead = maker.after(super, super + 1, strip);
      for (int64_t row = piece.m_begin; row < piece.m_end; row += 32, ++sums) {
        const auto& tile = reinterpret_cast<const XSuper*>(x)[row / 32 * supers.count + super];
        const int64_t rows = std::min<int64_t>(32, piece.m_end - row);
        multiply_stretch(*panel, tile, Supers::steps(supers.size(super)), rows, super == 0, ahead, *sums);
        if (super + 1 == supers.count) write_sums(args, *sums, strip, row, rows);
      }
    }
  }
}
