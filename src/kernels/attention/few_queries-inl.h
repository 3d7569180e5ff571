// Attention of one row under several KV heads: decode. Reads keys and values once, in memory order: page by page, and
// head by head within a page.

#if defined(MILLRACE_FEW_QUERIES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_FEW_QUERIES_INL_H
#undef MILLRACE_FEW_QUERIES_INL_H
#else
#define MILLRACE_FEW_QUERIES_INL_H
#endif

#include <limits>

#include "kernels/attention/tile-inl.h"
#include "kernels/attention/wide_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// Products defines how keys are scored and values added, and in which arithmetic; see WideProducts.
template <class Products, Softmax variant>
class FewQueries {
 public:
  FewQueries(const TileShape& shape, const Scratch& scratch) : shape_(shape), scratch_(scratch) {}

  // False: the unified maximum does not fit these scores, or narrow arithmetic overflowed.
  bool run(const Piece& piece, Partial& partial) {
    shape_.template start<variant>(partial);
    prepare_queries();
    for (int begin = piece.begin, end; begin < piece.end; begin = end) {
      end = std::min(piece.end, (begin / kKvTile + 1) * kKvTile);
      score(products_, begin, end);
      if constexpr (Products::kApproximate) {
        if (!trusted()) {
          WideProducts<Products::kDType> wide;
          wide.prepare(scratch_.q, shape_.heads, shape_.dim, shape_.stride);
          score(wide, begin, end);
        }
      }
      if (!weigh_tile(end - begin, partial)) return false;
      add(begin, end, partial.sums);
    }
    if (Products::kApproximate && !all_finite(partial.sums, shape_.heads * shape_.stride)) return false;
    return variant != Softmax::Unified || shape_.totals_are_sound(partial);
  }

 private:
  void prepare_queries() {
    for (int head = 0; head < shape_.heads; ++head) {
      const float* q = shape_.query(0, head);
      float* to = scratch_.q + head * shape_.stride;
      for (int64_t i = 0; i < shape_.dim; ++i) to[i] = q[i] * shape_.query_scale;
      std::fill(to + shape_.dim, to + shape_.stride, 0.0f);
    }
    products_.prepare(scratch_.q, shape_.heads, shape_.dim, shape_.stride);
  }

  // Calls work(offset of the rows, number of rows, index of the first, first head, heads) in memory order over
  // positions [begin, end), with one to four heads at a time.
  template <class Work>
  void walk(int begin, int end, const Work& work) const {
    for (int at = begin, n; at < end; at += n) {
      n = shape_.run_in_page(at, end);
      for (int kv_head = 0; kv_head < shape_.tile.kv_heads; ++kv_head) {
        const size_t offset = shape_.offset(at, kv_head);
        for (int g = 0; g < shape_.group; g += 4) {
          work(offset, n, at - begin, kv_head * shape_.group + g, std::min(4, shape_.group - g));
        }
      }
    }
  }

  template <class AnyProducts>
  void score(const AnyProducts& products, int begin, int end) const {
    walk(begin, end, [&](size_t offset, int n, int t, int head, int heads) {
      const std::byte* keys = shape_.args.kv.keys + offset;
      float* scores = scratch_.scores + head * kScoreStride + t;
      if (heads == 1) products.template score<1>(head, keys, n, scores);
      if (heads == 2) products.template score<2>(head, keys, n, scores);
      if (heads == 3) products.template score<3>(head, keys, n, scores);
      if (heads == 4) products.template score<4>(head, keys, n, scores);
    });
    for (int head = 0; head < shape_.heads; ++head) {
      float* row = scratch_.scores + head * kScoreStride;
      scratch_.factors[head] = hn::GetLane(largest_score(row, end - begin, shape_.args.softcap));
      if (AnyProducts::kApproximate && !all_finite(row, end - begin)) scratch_.factors[head] = kNotFinite;
    }
  }

  void add(int begin, int end, float* all_sums) const {
    walk(begin, end, [&](size_t offset, int n, int t, int head, int heads) {
      const std::byte* values = shape_.args.kv.values + offset;
      const float* weights = scratch_.scores + head * kScoreStride + t;
      float* sums = all_sums + head * shape_.stride;
      if (heads == 1) products_.template add<1>(values, n, weights, sums);
      if (heads == 2) products_.template add<2>(values, n, weights, sums);
      if (heads == 3) products_.template add<3>(values, n, weights, sums);
      if (heads == 4) products_.template add<4>(values, n, weights, sums);
    });
  }

  static constexpr float kNotFinite = std::numeric_limits<float>::infinity();

  // The error of scores from rounded queries grows with their magnitude; only those near the largest matter.
  bool trusted() const {
    bool all = products_.fits();
    for (int head = 0; head < shape_.heads; ++head) all = all && std::abs(scratch_.factors[head]) <= kTrustedScore;
    return all;
  }

  bool weigh_tile(int n, Partial& partial) const {
    for (int head = 0; head < shape_.heads; ++head) {
      if (!move_row<variant>(broadcast(scratch_.factors[head]), scratch_.scores + head * kScoreStride, n,
                             partial.maxima[head], partial.totals[head], partial.sums + head * shape_.stride,
                             shape_.stride)) {
        return false;
      }
    }
    for (int head = 0; head < shape_.heads; ++head) {
      partial.totals[head] += weigh_row(scratch_.scores + head * kScoreStride, n, broadcast(partial.maxima[head]));
    }
    return true;
  }

  const TileShape& shape_;
  const Scratch& scratch_;
  Products products_;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#endif  // MILLRACE_FEW_QUERIES_INL_H
