// Decode of Q4_0 and Q4_1 for cores that read fastest in memory order: one strip after the other. Included inside a
// target region, after strip-inl.h.
//
// Two consecutive blocks are multiplied in an interleaved way, to hide the latency of the sums. Elsewhere several
// strips serve that purpose.
#pragma once

using NearSums = int32x4_t[2];  // rows 0..3 and 4..7

// As dot_nibbles, divided by 16: adds a sixteenth of the whole-byte sum to the unscaled sum of the low nibbles. A shift
// takes one slot of the vector pipes, a multiplication with 16 two. The result is rounded to an integer; that error is
// small compared with the rounding of x. beside(j), j in 0..3, is other work to interleave with the products, since it
// can use only one of the two pipes.
template <class Format, int count, class Beside>
MR_INLINE inline void dot_near_nibbles(const typename Format::Block* blocks, const SmallX<1>* x,
                                       NearSums (&sums)[count], Beside beside) {
  // Results contain the bits of kIntegerShift, so that they can be read as floats. A sixteenth of the bits arrives
  // with the whole-byte sum, so the low sums start from the rest.
  constexpr int32_t kShift = std::bit_cast<int32_t>(kIntegerShift), kFirst = kShift - kShift / 16;
  [[maybe_unused]] static constexpr int32_t kLowFirst[4] = {kFirst, kFirst, kFirst, kFirst};
  NearSums whole[count];
  int8x16_t x_low[count], x_high[count];
  unrolled<count>([&](auto i) MR_INLINE {
    x_low[i] = vld1q_s8(x[i].q[0]);
    x_high[i] = vld1q_s8(x[i].q[0] + 16);
    unrolled<2>([&](auto half) MR_INLINE {
      whole[i][half] = load_sum(x[i].first[0]);
      sums[i][half] = load_sum(kLowFirst);
    });
  });
  unrolled<4>([&](auto j) MR_INLINE {
    unrolled<count>([&](auto i) MR_INLINE {
      unrolled<2>([&](auto half) MR_INLINE {
        const uint8x16_t both = load_half(Format::nibbles(blocks[i], 0)[j], half);
        const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
        Dot::quad<j>(whole[i][half], vreinterpretq_s8_u8(both), x_high[i]);
        Dot::quad<j>(sums[i][half], low, x_low[i]);
      });
    });
    beside(j);
  });
  unrolled<count>([&](auto i) MR_INLINE {
    unrolled<2>([&](auto half) MR_INLINE { sums[i][half] = vrsraq_n_s32(sums[i][half], whole[i][half], 4); });
  });
}

// Volatile, so that the compiler keeps it in place.
MR_INLINE inline float32x4_t load_f16_here(const HalfOfRow& values, int half) {
  float32x4_t wide;
  asm volatile("fcvtl %0.4s, %1.4h" : "=w"(wide) : "w"(vld1_u16(values + 4 * half)));
  return wide;
}

struct NearResult {
  float32x4_t sixteenths[2] = {vdupq_n_f32(0), vdupq_n_f32(0)}, mins[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
};

template <class Format, int count>
MR_INLINE inline void add_near_blocks(const typename Format::Block* blocks, const SmallX<1>* x, NearResult& acc) {
  NearSums sums[count];
  float32x4_t d[count][2];
  dot_near_nibbles<Format, count>(blocks, x, sums, [&](auto j) MR_INLINE {
    if constexpr (j / 2 < count) d[j / 2][j % 2] = load_f16_here(blocks[j / 2].d, j % 2);
  });
  unrolled<count>([&](auto i) MR_INLINE {
    unrolled<2>([&](auto half) MR_INLINE {
      const float32x4_t sum = vsubq_f32(vreinterpretq_f32_s32(sums[i][half]), vdupq_n_f32(kIntegerShift));
      acc.sixteenths[half] = vfmaq_f32(acc.sixteenths[half], sum, vmulq_n_f32(d[i][half], x[i].scale[0]));
      if constexpr (Format::kMins) {
        acc.mins[half] = vfmaq_n_f32(acc.mins[half], load_f16(blocks[i].m, half), x[i].sum[0]);
      }
    });
  });
}

template <class Format, Ahead ahead>
__attribute__((noinline)) void multiply_near_nibbles(const LinearArgs& args, int64_t strip, int64_t m,
                                                     const SmallX<1>* x) {
  NearResult acc;
  StripStreams<Format, 1> blocks(*args.weights, strip);
  for (; blocks.more_than(1); blocks.next(2), x += 2) {
    blocks.template prefetch<ahead, 2>();
    add_near_blocks<Format, 2>(&blocks.block(0), x, acc);
  }
  if (blocks.more()) add_near_blocks<Format, 1>(&blocks.block(0), x, acc);
  unrolled<2>([&](auto half) MR_INLINE {
    write_four(args, m, strip * kPackedRows + 4 * half, vfmaq_n_f32(acc.mins[half], acc.sixteenths[half], 16), true);
  });
}
