// A warp's computation on each unit of decode attention: scores, softmax, weighted values.
#pragma once

#include "kernels/attention/cuda/decode/walk.cuh"
#include "kernels/attention/cuda/rows.cuh"

namespace millrace {

// In log2; bf16 has the range of f32.
template <class T>
struct UnifiedRange {
  static constexpr float kAbove = kUnifiedRange, kBelow = kUnifiedRange;
};
template <>
struct UnifiedRange<__half> {
  static constexpr float kAbove = kUnifiedAboveHalf, kBelow = kUnifiedBelowHalf;
};

// Turns products into weights: scale, softcap, mask and one of the softmax variants.
template <class T, class Config>
class WarpAttention {
  static constexpr int kDim = Config::kDim;
  using Rows = SwizzledRows<kDim>;

 public:
  __device__ WarpAttention(const DecodeParams& p, const Segment& s) : p_(p) {
    const int lane = threadIdx.x % 32;
    key_row_ = lane % 8 + lane / 16 * 8;
    key_piece_ = lane / 8 % 2;
    value_row_ = lane % 16;
    value_piece_ = lane / 16;
    column_ = lane % 4 * 2;
    halves = s.rows > 8 ? 2 : 1;
    const int g = lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int index = min(s.first_row_of_tile + g + half * 8, s.slice.rows * p.group - 1);
      const RowAndHead at(p, s, index);
      last_[half] = s.slice.past + at.row;
      first_[half] = p.args.window > 0 ? last_[half] - p.args.window + 1 : 0;
      phi[half] = p.args.phi != nullptr ? p.args.phi[s.kv_head * p.group + at.head] * kLog2E : 0.0f;
    }
    if (p.args.sinks != nullptr) prefetch(p.args.sinks + s.kv_head * p.group);  // for the end
    all_see_until_ = s.slice.past;
    all_see_from_ = p.args.window > 0 ? s.slice.past + s.slice.rows - p.args.window : 0;
  }

  // Loads queries as the left operand from their rows in shared memory. Unused rows repeat another row; their results
  // are discarded.
  __device__ void take_queries(const Segment& s, uint32_t shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 16;
    queries_ = shared;
    query_row_ = row < s.rows ? row : 0;
    query_piece_ = lane / 16;
    if constexpr (!Config::kSharedQueries) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) take_step(k, q_[k]);
    }
  }

  // Scores in log2: score[n] belongs to positions 8 n .. 8 n + 7 of the unit.
  __device__ void score_unit(uint32_t keys, int unit, float (&score)[2][4]) {
    float sums[2][2][4] = {};  // alternating sums: products that add to the same sum depend on each other
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t b[4];
      load_matrices(b, keys + Rows::offset(key_row_, k * 2 + key_piece_));
      uint32_t(&q)[4] = q_[Config::kSharedQueries ? 0 : k];
      if constexpr (Config::kSharedQueries) take_step(k, q);
      mma<T>(sums[k % 2][0], q, b[0], b[1]);
      mma<T>(sums[k % 2][1], q, b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[n][i] = sums[0][n][i] + sums[1][n][i];
    }
    const bool masked = unit * kUnit + kUnit - 1 > all_see_until_ || unit * kUnit < all_see_from_;
    finish_scores(p_.args, reinterpret_cast<float(&)[8]>(score));
    if (!masked) return;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = unit * kUnit + n * 8 + column_ + i % 2;
        if (position > last_[i / 2] || position < first_[i / 2]) score[n][i] = kMasked;
      }
    }
  }

  template <Softmax kSoftmax>
  __device__ void follow_maximum(const float (&score)[2][4], RowSums<kDim>& sums) const {
    float largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = half * 2;
      largest[half] = fmaxf(fmaxf(score[0][i], score[0][i + 1]), fmaxf(score[1][i], score[1][i + 1]));
    }
    constexpr float kAbove = kSoftmax == Softmax::Lazy ? kRoom<T> : 0;
    if (kSoftmax == Softmax::Lazy) {
      bool behind = largest[0] > sums.largest[0] + (kLazySlack - kAbove);
      if (halves > 1) behind |= largest[1] > sums.largest[1] + (kLazySlack - kAbove);
      if (!__any_sync(~0u, behind)) return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half < halves) sums.rescale(half, fmaxf(sums.largest[half], quad_max(largest[half]) + kAbove));
    }
  }

  // Adds the weighted values of a unit; the weights of a row are relative to `base`.
  __device__ void add_unit(uint32_t values, float (&score)[2][4], const float (&base)[2], RowSums<kDim>& sums) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = i / 2 < halves ? exp2_fast(score[n][i] - base[i / 2]) : 0.0f;
        sums.total[i / 2] += score[n][i];
      }
    }
    const uint32_t weights[4] = {pack<T>(score[0][0], score[0][1]), pack<T>(score[0][2], score[0][3]),
                                 pack<T>(score[1][0], score[1][1]), pack<T>(score[1][2], score[1][3])};
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, values + Rows::offset(value_row_, n * 2 + value_piece_));
      mma<T>(sums.o[n * 2], weights, b[0], b[1]);
      mma<T>(sums.o[n * 2 + 1], weights, b[2], b[3]);
    }
  }

  float phi[2];  // in log2
  int halves;    // 1: no row beyond the eighth is used

 private:
  __device__ void take_step(int k, uint32_t (&q)[4]) const {
    load_matrices(q, queries_ + Rows::offset(query_row_, k * 2 + query_piece_));
  }

  const DecodeParams& p_;
  uint32_t queries_;
  int query_row_, query_piece_;
  uint32_t q_[Config::kSharedQueries ? 1 : kDim / 16][4];
  int key_row_, key_piece_, value_row_, value_piece_, column_;
  int last_[2], first_[2], all_see_until_, all_see_from_;
};

}  // namespace millrace
