// Blocked attention with matrix instructions: queries, keys, weights and values are rounded to bf16, sums are f32.
//
// Products provides the part that depends on the instruction set, on operands packed for it. `width` is the space for
// elements along the depth of a product.
//   kVectors, kPositions            query vectors and positions are multiples of these
//   kTile, kTogether                positions whose keys and values are packed at a time; query vectors whose scores
//   for them fit the L1 cache
//   pack_left(a, stride, rows, cols, out, width)                 rows of f32
//   pack_right(dtype, rows, count, cols, out, width)             rows of F16 or BF16, at any address
//   pack_right_columns(dtype, rows, count, cols, out, width)     the transpose of such rows
//   multiply(left, right, width, rows, cols, depth, c, c_stride, accumulate)   C[i][j] (+)= sum over k of A[i][k]
//   B[j][k]

#if defined(MILLRACE_MANY_PAIRS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_MANY_PAIRS_INL_H
#undef MILLRACE_MANY_PAIRS_INL_H
#else
#define MILLRACE_MANY_PAIRS_INL_H
#endif

#include "kernels/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

template <class Products>
class ManyPairs {
 public:
  ManyPairs(const TileShape& shape, const Scratch& scratch)
      : shape_(shape),
        scratch_(scratch),
        vectors_((shape.vectors + Products::kVectors - 1) / Products::kVectors * Products::kVectors) {}

  // False: scores are so large that rounded keys and queries could not tell them apart.
  bool run(const Piece& piece, Partial& partial) {
    shape_.template start<Softmax::Lazy>(partial);
    std::fill(partial.sums + shape_.vectors * shape_.stride, partial.sums + vectors_ * shape_.stride, 0.0f);
    pack_queries();
    for (int begin = piece.begin, end; begin < piece.end; begin = end) {
      end = std::min(piece.end, (begin / Products::kTile + 1) * Products::kTile);
      const int count = find_rows(begin, end, shape_.args.kv.keys);
      products_.pack_right(shape_.args.kv.dtype, rows_, count, shape_.dim, keys(), shape_.dim);
      find_rows(begin, end, shape_.args.kv.values);
      products_.pack_right_columns(shape_.args.kv.dtype, rows_, count, shape_.dim, values(), Products::kTile);
      for (int64_t first = 0; first < vectors_; first += Products::kTogether) {
        if (!add_tile(begin, end, count, first, std::min(vectors_, first + Products::kTogether), partial)) return false;
      }
    }
    return true;
  }

 private:
  // Distance between the scores of two query vectors: not a power of two, to avoid cache conflicts.
  static constexpr int64_t kStride = Products::kTile + 16;
  static_assert(Products::kTile % kKvTile == 0 && Products::kTile <= 2 * kKvTile);  // must fit Scratch

  // Query vectors [first, last) with the tile's positions [begin, end).
  bool add_tile(int begin, int end, int count, int64_t first, int64_t last, Partial& partial) const {
    const int64_t vectors = last - first;
    products_.multiply(queries() + first * shape_.dim, keys(), shape_.dim, vectors, count, shape_.dim, scratch_.scores,
                       kStride, false);
    if (!weigh_tile(begin, end, count, first, std::min(last, shape_.vectors), partial)) return false;
    products_.pack_left(scratch_.scores, kStride, vectors, count, scratch_.weights, Products::kTile);
    products_.multiply(scratch_.weights, values(), Products::kTile, vectors, shape_.dim, count,
                       partial.sums + first * shape_.stride, shape_.stride, true);
    return true;
  }

  uint16_t* queries() const { return reinterpret_cast<uint16_t*>(scratch_.q); }
  uint16_t* keys() const { return reinterpret_cast<uint16_t*>(scratch_.keys); }
  uint16_t* values() const { return reinterpret_cast<uint16_t*>(scratch_.values); }

  void pack_queries() const {
    float* some = scratch_.values;
    for (int64_t first = 0; first < vectors_; first += Products::kVectors) {
      for (int64_t i = 0; i < Products::kVectors; ++i) {
        const int row = static_cast<int>(first + i) / shape_.group, head = static_cast<int>(first + i) % shape_.group;
        const float* q = row < shape_.tile.rows ? shape_.query(row, head) : nullptr;
        for (int64_t e = 0; e < shape_.dim; ++e)
          some[i * shape_.stride + e] = q != nullptr ? q[e] * shape_.query_scale : 0.0f;
      }
      products_.pack_left(some, shape_.stride, Products::kVectors, shape_.dim, queries() + first * shape_.dim,
                          shape_.dim);
    }
  }

  int find_rows(int begin, int end, const std::byte* base) {
    return shape_.find_rows(begin, end, base, Products::kPositions, rows_);
  }

  struct Range {
    int begin, end;
    bool empty() const { return begin >= end; }
    int size() const { return end - begin; }
  };
  // The positions of [begin, end) that a query vector attends to, relative to begin.
  Range seen(int64_t vector, int begin, int end) const {
    const SeenPositions all = shape_.seen(static_cast<int>(vector) / shape_.group);
    return {std::max(begin, all.begin) - begin, std::min(end, all.end) - begin};
  }

  // Turns scores into weights; masked positions, and those up to `count`, get zero.
  bool weigh_tile(int begin, int end, int count, int64_t first, int64_t last, Partial& partial) const {
    for (int64_t vector = first; vector < last; ++vector) {
      const Range range = seen(vector, begin, end);
      if (range.empty()) continue;
      float* scores = scratch_.scores + (vector - first) * kStride + range.begin;
      const F32Vec most = largest_score(scores, range.size(), shape_.args.softcap);
      if (any(hn::Gt(hn::Abs(most), broadcast(kTrustedPairScore)))) return false;
      move_row<Softmax::Lazy>(most, scores, range.size(), partial.maxima[vector], partial.totals[vector],
                              partial.sums + vector * shape_.stride, shape_.stride);
    }
    for (int64_t vector = first; vector < last; ++vector) {
      const Range range = seen(vector, begin, end);
      float* scores = scratch_.scores + (vector - first) * kStride;
      if (range.empty()) {
        std::fill(scores, scores + count, 0.0f);
        continue;
      }
      partial.totals[vector] +=
          weigh_row<Exp2::Coarse>(scores + range.begin, range.size(), broadcast(partial.maxima[vector]));
      std::fill(scores, scores + range.begin, 0.0f);
      std::fill(scores + range.end, scores + count, 0.0f);
    }
    return true;
  }

  const TileShape& shape_;
  const Scratch& scratch_;
  const int64_t vectors_;
  const Products products_{};
  const std::byte* rows_[Products::kTile];
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_MANY_PAIRS_INL_H
