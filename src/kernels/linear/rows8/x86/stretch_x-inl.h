// Quantizes rows of x to int8 in the same stretches as the weights. Included inside a target region.
#pragma once

#include "kernels/linear/rows8/x86/stretches-inl.h"

// One stretch of x. Each row has one scale per part; a part is a power of two of steps or the whole stretch, as long as
// accuracy allows.
struct alignas(64) XSuper {
  int8_t q[kSuperSteps][2][16][64];  // [step][tile][row]
  float scale[kSuperSteps][32];      // scale of the part that contains the step
  int32_t sum[kSuperSteps][32];      // sum of q, where needed
  int64_t part[2];                   // steps per part, for each tile

  int64_t part_steps(int64_t rows) const { return rows > 16 ? std::min(part[0], part[1]) : part[0]; }
};

// Largest magnitude of up to 64 elements; adds their squares to `squares`.
MR_INLINE inline float largest_of(const float* x, int64_t count, __m512& squares) {
  __m512 most = _mm512_setzero_ps();
  for (int64_t i = 0; i < count; i += 16) {
    const __m512 v = _mm512_loadu_ps(x + i);
    squares = _mm512_fmadd_ps(v, v, squares);
    most = _mm512_max_ps(most, _mm512_abs_ps(v));
  }
  return _mm512_reduce_max_ps(most);
}

// Rounding errors are proportional to the largest element of a part, and matter relative to the stretch's root mean
// square. One scale per 64 elements would be the most accurate, but then all sums must be scaled after each product. So
// a part is as long as possible while the square of its largest element is at most this many times the mean square.
constexpr float kMostAboveMean = 100;

struct PartsOfRows {
  int64_t steps, part;  // steps of the stretch, steps of a part
  float largest[16][kSuperSteps];

  // The rows of a tile share one part length, unless the result must be invariant: then each part is one step.
  PartsOfRows(const LinearArgs& args, int64_t row, int64_t rows, int64_t first, int64_t size)
      : steps(Supers::steps(size)), part(args.invariant ? 1 : kSuperSteps) {
    for (int64_t r = 0; r < rows; ++r) {
      __m512 squares = _mm512_setzero_ps();
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t group = 2 * step;
        largest[r][step] = largest_of(args.x.row<float>(row + r) + 32 * (first + group),
                                      32 * std::min<int64_t>(2, size - group), squares);
      }
      const float mean = _mm512_reduce_add_ps(squares) / 64;  // mean square of an element, times the number of steps
      if (std::isnan(mean)) std::fill_n(largest[r], steps, mean);
      while (part > 1 && !even(largest[r], mean)) part /= 2;
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t step = 0; step < steps; step += part) {
        const int64_t count = std::min(part, steps - step);
        std::fill_n(largest[r] + step, count, largest_of_part(largest[r] + step, count));
      }
    }
  }

 private:
  static float largest_of_part(const float* of, int64_t count) {
    return *std::max_element(of, of + count);  // a row is all NaN or has none
  }
  bool even(const float* of, float mean) const {
    float with_parts = 0;
    for (int64_t step = 0; step < steps; step += part) {
      const int64_t count = std::min(part, steps - step);
      const float most = largest_of_part(of + step, count);
      with_parts += static_cast<float>(count) * most * most;
    }
    return with_parts <= kMostAboveMean * mean;
  }
};

// Rounds 64 elements of a row, or 32 padded with zeros. Returns the sum of q.
MR_INLINE inline int32_t round_64(const float* x, int64_t count, float inverse, int8_t* to) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < 64; i += 16) {
    const __m512 v = i < count ? _mm512_loadu_ps(x + i) : _mm512_setzero_ps();
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v, _mm512_set1_ps(inverse)));
    sum = _mm512_add_epi32(sum, q);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtsepi32_epi8(q));
  }
  return _mm512_reduce_add_epi32(sum);
}

// Quantizes up to 16 rows, one tile of the stretch. `with_sums`: also stores the sums of q.
template <bool with_sums>
void quantize_super(const LinearArgs& args, int64_t m, int64_t rows, int64_t first, int64_t size, XSuper& to) {
  const PartsOfRows found(args, m, rows, first, size);
  const int64_t tile = m / 16 % 2;
  to.part[tile] = found.part;
  for (int64_t step = 0; step < found.steps; ++step) {
    for (int64_t r = 0; r < 16; ++r) {
      const bool exists = r < rows;
      const float largest = exists ? found.largest[r][step] : 0;
      const int64_t count = exists ? 32 * std::min<int64_t>(2, size - 2 * step) : 0;
      to.scale[step][16 * tile + r] = largest * (1 / 127.0f);
      const int32_t sum = round_64(args.x.row<float>(exists ? m + r : m) + 32 * (first + 2 * step), count,
                                   largest > 0 ? 127 / largest : 0.0f, to.q[step][tile][r]);
      if constexpr (with_sums) to.sum[step][16 * tile + r] = sum;
    }
  }
}

template <bool with_sums>
void quantize_for_int8(const LinearArgs& args, int64_t m_begin, int64_t m_end, std::byte* out) {
  const Supers supers(args.x.cols);
  for (int64_t m = m_begin; m < m_end; m += 16) {
    auto* tile = reinterpret_cast<XSuper*>(out) + m / 32 * supers.count;
    for (int64_t i = 0; i < supers.count; ++i) {
      quantize_super<with_sums>(args, m, std::min<int64_t>(16, m_end - m), supers.first(i), supers.size(i), tile[i]);
    }
  }
}

size_t int8_x_bytes(int64_t m, int64_t k) {
  return static_cast<size_t>((m + 31) / 32 * Supers(k).count) * sizeof(XSuper);
}
