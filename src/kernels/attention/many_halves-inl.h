// Blocked attention over f16 keys and values in f16 arithmetic, for prefill on cores without wider products. As in
// many_queries-inl.h, scores are transposed, [position][query vector], so that keys and values are read in place and
// need no packing. Weights are computed in f32, then rounded.

#if defined(MILLRACE_MANY_HALVES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_MANY_HALVES_INL_H
#undef MILLRACE_MANY_HALVES_INL_H
#else
#define MILLRACE_MANY_HALVES_INL_H
#endif

#include "kernels/attention/arm/fp16_blocks.h"
#include "kernels/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

class ManyHalves {
 public:
  ManyHalves(const TileShape& shape, const Scratch& scratch)
      : shape_(shape),
        scratch_(scratch),
        vectors_((shape.vectors + kBlockVectors - 1) / kBlockVectors * kBlockVectors),
        scores_(reinterpret_cast<uint16_t*>(scratch.scores)) {}

  // False: queries, scores or sums are too large for f16.
  bool run(const Piece& piece, Partial& partial) {
    if (shape_.args.softcap > 0 || !transpose_queries()) return false;
    shape_.template start<Softmax::Online>(partial);
    std::fill(partial.maxima + shape_.vectors, partial.maxima + vectors_, kNoScore);
    std::fill(partial.totals + shape_.vectors, partial.totals + vectors_, 0.0f);
    std::fill(partial.sums + shape_.vectors * shape_.stride, partial.sums + vectors_ * shape_.stride, 0.0f);
    for (int begin = piece.begin, end; begin < piece.end; begin = end) {
      end = std::min(piece.end, (begin / kKvTile + 1) * kKvTile);
      const int n = end - begin, count = find_rows(begin, end, shape_.args.kv.keys);
      if (!(largest_query_ * std::sqrt(largest_norm_fp16(rows_, n, shape_.dim)) <= kTrustedProduct)) return false;
      score_block_fp16(rows_, count, queries(), vectors_, shape_.dim, scores_);
      if (!weigh_tile(begin, n, partial)) return false;
      find_rows(begin, end, shape_.args.kv.values);
      add_block_fp16(rows_, n, scores_, vectors_, shape_.dim, partial.sums, shape_.stride);
    }
    return all_finite(partial.sums, shape_.vectors * shape_.stride);
  }

 private:
  // In log2, bound for the product of the lengths of a query and a key: intermediate sums of a score can be that large,
  // and so can their rounding errors if parts cancel.
  static constexpr float kTrustedProduct = 2 * kTrustedScore;
  // Score of masked positions; trusted scores are far above it.
  static constexpr float kUnseen = -60000, kLeastTrusted = -30000;

  uint16_t* queries() const { return reinterpret_cast<uint16_t*>(scratch_.q); }

  // Four vectors and four elements at a time. False: some query exceeds the range of f16.
  bool transpose_queries() {
    const float none[4] = {};
    F32Vec largest = hn::Zero(kF32);
    float longest = 0;
    for (int64_t vector = 0; vector < vectors_; vector += 4) {
      const float* q[4];
      F32Vec squares[4] = {hn::Zero(kF32), hn::Zero(kF32), hn::Zero(kF32), hn::Zero(kF32)};
      for (int j = 0; j < 4; ++j) {
        const int row = static_cast<int>(vector + j) / shape_.group, head = static_cast<int>(vector + j) % shape_.group;
        q[j] = row < shape_.tile.rows ? shape_.query(row, head) : nullptr;
      }
      for (int64_t i = 0; i < shape_.dim; i += 4) {
        uint16x4_t x[4];
        MR_UNROLL for (int j = 0; j < 4; ++j) {
          const F32Vec four = hn::Mul(load(q[j] != nullptr ? q[j] + i : none), broadcast(shape_.query_scale));
          largest = hn::Max(largest, hn::Abs(four));
          squares[j] = hn::MulAdd(four, four, squares[j]);
          x[j] = vreinterpret_u16_f16(vcvt_f16_f32(four.raw));
        }
        const uint16x4_t even[2] = {vzip1_u16(x[0], x[2]), vzip2_u16(x[0], x[2])};
        const uint16x4_t odd[2] = {vzip1_u16(x[1], x[3]), vzip2_u16(x[1], x[3])};
        MR_UNROLL for (int e = 0; e < 4; ++e) {
          uint16_t* to = queries() + (i + e) * vectors_ + vector;
          vst1_u16(to, e % 2 == 0 ? vzip1_u16(even[e / 2], odd[e / 2]) : vzip2_u16(even[e / 2], odd[e / 2]));
        }
      }
      for (const F32Vec& sum : squares) longest = std::max(longest, sum_of(sum));
    }
    largest_query_ = std::sqrt(longest);
    return max_of(largest) < 65504;
  }

  int find_rows(int begin, int end, const std::byte* base) {
    return shape_.find_rows(begin, end, base, kBlockPositions, rows_);
  }

  // Turns scores into weights relative to the largest score so far.
  bool weigh_tile(int begin, int n, Partial& partial) const {
    float *least = scratch_.keys, *most = least + vectors_;
    score_range_fp16(scores_, n, vectors_, least, most);
    if (!trusted(least, most)) return false;
    const bool masked = shape_.is_masked(begin, begin + n);
    if (masked) {
      mask_scores(begin, n);
      score_range_fp16(scores_, n, vectors_, least, most);
      if (!seen_trusted(most)) return false;
    }
    for (int64_t vector = 0; vector < vectors_; vector += 2 * kLanes) {
      masked ? weigh_columns<true>(n, vector, most, partial) : weigh_columns<false>(n, vector, most, partial);
    }
    for (int64_t vector = 0; vector < shape_.vectors; ++vector) {
      const float factor = scratch_.factors[vector];
      if (factor != 1) scale_row(partial.sums + vector * shape_.stride, factor, shape_.stride);
    }
    return true;
  }

  bool trusted(const float* least, const float* most) const {
    auto all = hn::Eq(hn::Zero(kF32), hn::Zero(kF32));
    for (int64_t vector = 0; vector < vectors_; vector += kLanes) {
      all = hn::And(all, hn::And(hn::Le(hn::Abs(load(most + vector)), broadcast(kTrustedScore)),
                                 hn::Ge(load(least + vector), broadcast(kLeastTrusted))));
    }
    return hn::AllTrue(kF32, all);
  }

  // Checks only unmasked scores: masked ones may have hidden that the largest score is too large.
  bool seen_trusted(const float* most) const {
    return std::all_of(most, most + shape_.vectors,
                       [](float score) { return score < kLeastTrusted || std::abs(score) <= kTrustedScore; });
  }

  void mask_scores(int begin, int n) const {
    const uint16_t unseen = f32_to_f16(kUnseen);
    for (int64_t vector = 0; vector < shape_.vectors; ++vector) {
      const SeenPositions seen = shape_.seen(static_cast<int>(vector) / shape_.group);
      for (int t = 0; t < std::min(seen.begin - begin, n); ++t) scores_[t * vectors_ + vector] = unseen;
      for (int t = std::max(seen.end - begin, 0); t < n; ++t) scores_[t * vectors_ + vector] = unseen;
    }
  }

  // Eight query vectors.
  template <bool masked>
  void weigh_columns(int n, int64_t vector, const float* most, Partial& partial) const {
    constexpr int kVectors = 2, kTogether = 2;
    F32Vec maximum[kVectors], total[kVectors];
    MR_UNROLL for (int j = 0; j < kVectors; ++j) {
      const int64_t at = vector + j * kLanes;
      const F32Vec before = load(partial.maxima + at), here = load(most + at);
      maximum[j] = hn::Max(before, here);
      if (masked) maximum[j] = hn::IfThenElse(hn::Gt(here, broadcast(kLeastTrusted)), maximum[j], before);
      store(maximum[j], partial.maxima + at);
      const F32Vec factor = exp2_or_zero(hn::Sub(before, maximum[j]));
      store(factor, scratch_.factors + at);
      total[j] = hn::Mul(load(partial.totals + at), factor);
    }
    // Two positions at once; if the second one does not exist, its score is left unchanged.
    for (int t = 0; t < n; t += kTogether) {
      uint16_t* at[kTogether] = {scores_ + t * vectors_ + vector, scores_ + (t + 1) * vectors_ + vector};
      F32Vec score[kTogether * kVectors], weight[kTogether * kVectors];
      const int count = std::min(kTogether, n - t);
      MR_UNROLL for (int i = 0; i < kTogether * kVectors; ++i) {
        score[i] = load_f16(at[i / kVectors] + i % kVectors * kLanes);
        weight[i] = hn::Sub(score[i], maximum[i % kVectors]);
      }
      exp2<Exp2::Coarse>(weight);
      for (int p = 0; p < count; ++p) {
        MR_UNROLL for (int j = 0; j < kVectors; ++j) {
          const int i = p * kVectors + j;
          if constexpr (masked) {
            weight[i] = hn::IfThenElseZero(hn::Gt(score[i], broadcast(kLeastTrusted)), weight[i]);
          }
          total[j] = hn::Add(total[j], weight[i]);
          const hn::Rebind<hwy::float16_t, F32> d16;
          hn::StoreU(hn::DemoteTo(d16, weight[i]), d16, reinterpret_cast<hwy::float16_t*>(at[p] + j * kLanes));
        }
      }
    }
    MR_UNROLL for (int j = 0; j < kVectors; ++j) store(total[j], partial.totals + vector + j * kLanes);
  }

  const TileShape& shape_;
  const Scratch& scratch_;
  const int64_t vectors_;
  uint16_t* const scores_;
  const std::byte* rows_[kKvTile];
  float largest_query_ = 0;  // length of the longest query, in log2 units like the scores
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_MANY_HALVES_INL_H
