// Chooses the experts of one row and weighs them. A warp holds the row: lane l has the experts l * kEach and following.
//
// Choices are made in double precision, as the reference makes them, so that close scores are not ordered by rounding.
// Without a bias and without groups the scores grow with the logits, and the logits themselves are compared (kPlain).
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/router/router.h"

namespace millrace {

struct CudaRouterParams {
  RouterSettings settings;
  const float* logits;
  int64_t stride;  // of the logits
  bool by_four;    // whether rows of logits begin at multiples of 16 bytes
  const float *choice_bias, *expert_scale;
  int experts, rows;  // experts without shared ones
  int32_t* chosen;
  float* weights;

  __host__ __device__ int each() const { return settings.per_row + settings.shared; }  // pairs of a row
};

inline constexpr int kMostExperts = RouterOp::kMostGroups, kMostExpertGroups = 32;

__host__ __device__ inline bool chooses_groups(const RouterSettings& s) { return s.kept_groups < s.expert_groups; }

// Shared memory of a warp.
struct RowScratch {
  double* scores;   // [experts], if the settings have groups
  int32_t* chosen;  // [each()]
  float* weights;   // [each()]

  static __host__ __device__ int bytes(const CudaRouterParams& p) {
    return 8 * ((chooses_groups(p.settings) ? p.experts : 0) + p.each());
  }
  __device__ RowScratch(void* shared, const CudaRouterParams& p, int warp)
      : scores(reinterpret_cast<double*>(static_cast<uint8_t*>(shared) + warp * bytes(p))),
        chosen(reinterpret_cast<int32_t*>(scores + (chooses_groups(p.settings) ? p.experts : 0))),
        weights(reinterpret_cast<float*>(chosen + p.each())) {}
};

// Keys order the choice: the largest comes first. An expert that is taken or does not exist has the key 0. An expert
// of a group that was not kept has kLastKey, so that a row always finds distinct experts.
inline constexpr uint32_t kLastKey = 1, kNanKey = 2;

// Maps scores to keys of the same order; -0 equals 0.
__device__ inline uint64_t key_of(double score) {
  const auto bits = static_cast<uint64_t>(__double_as_longlong(__dadd_rn(score, 0)));
  if (score != score) return kNanKey;
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}
__device__ inline uint32_t key_of(float score) {
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0));
  if (score != score) return kNanKey;
  return bits >> 31 ? ~bits : bits | uint32_t{1} << 31;
}

// The largest number of the warp, by one instruction instead of five shuffles.
__device__ inline float warp_largest(float x) {
  const uint32_t top = __reduce_max_sync(~0u, key_of(x));
  return __uint_as_float(top >> 31 ? top & 0x7fffffffu : ~top);
}

__device__ inline uint32_t largest_key(uint32_t key) { return __reduce_max_sync(~0u, key); }
__device__ inline uint64_t largest_key(uint64_t key) {
  const auto high = static_cast<uint32_t>(key >> 32), low = static_cast<uint32_t>(key);
  const uint32_t top = __reduce_max_sync(~0u, high);
  return uint64_t{top} << 32 | __reduce_max_sync(~0u, high == top ? low : 0u);
}

// The biases of a lane's experts, the same for all rows. No kernel writes them, so they may be loaded early.
template <int kEach, bool kPlain>
struct ChoiceBiases {
  float at[kPlain ? 1 : kEach];

  __device__ explicit ChoiceBiases(const CudaRouterParams& p) {
    const int first = static_cast<int>(threadIdx.x) % 32 * kEach;
#pragma unroll
    for (int i = 0; i < (kPlain ? 0 : kEach); ++i) {
      at[i] = p.choice_bias != nullptr && first + i < p.experts ? p.choice_bias[first + i] : 0;
    }
  }
};

// kEach: experts of a lane.
template <int kEach, bool kPlain>
class RowOfExperts {
 public:
  using Biases = ChoiceBiases<kEach, kPlain>;

  __device__ RowOfExperts(const CudaRouterParams& p, int row, const RowScratch& own, const Biases& biases)
      : p_(p), own_(own), biases_(biases), lane_(static_cast<int>(threadIdx.x) % 32) {
    const float* from = p.logits + row * p.stride;
    load(from);
    largest_ = -INFINITY;
#pragma unroll
    for (const float logit : logits_) largest_ = fmaxf(largest_, logit);
    largest_ = warp_largest(largest_);
    if (p.settings.gates_shared) shared_weight_ = 1 / (1 + expf(-from[p.experts]));
  }

  // Fills chosen and weights [each()], and the scratch's copies of chosen, for which the caller synchronizes the warp.
  __device__ void route(int32_t* chosen, float* weights) {
    const RouterSettings& s = p_.settings;
    rank();
    if constexpr (!kPlain) {
      if (chooses_groups(s)) keep_best_groups();
    }
    const float softmax_sum = s.scoring == Scoring::Softmax ? sum_of_exponentials() : 1;
#pragma unroll 1
    for (int i = 0; i < s.per_row; ++i) take_best(i);
    __syncwarp();
    float sum = 0;
    for (int i = lane_; i < s.per_row; i += 32) {
      const float weight = weight_of(own_.weights[i], softmax_sum);
      own_.weights[i] = weight;
      sum += weight;
    }
    const bool divides = s.scoring == Scoring::SoftmaxOfChosen || (s.renormalize && s.scoring != Scoring::SparseMixer);
    const float divisor = divides ? fmaxf(warp_sum(sum), s.least_sum) + s.sum_epsilon : 1;
    for (int i = lane_; i < s.per_row; i += 32) {
      const int expert = own_.chosen[i];
      const float factor = p_.expert_scale != nullptr ? p_.expert_scale[expert] : 1;
      chosen[i] = expert;
      weights[i] = own_.weights[i] / divisor * (s.scale * factor);
    }
    for (int i = lane_; i < s.shared; i += 32) {
      own_.chosen[s.per_row + i] = chosen[s.per_row + i] = p_.experts + i;
      weights[s.per_row + i] = shared_weight_;
    }
  }

 private:
  using Key = std::conditional_t<kPlain, uint32_t, uint64_t>;

  __device__ int expert(int i) const { return lane_ * kEach + i; }

  __device__ void load(const float* from) {
    constexpr int kWide = kEach % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int i = 0; i < kEach; i += kWide) {
      if (kWide == 4 && p_.by_four && expert(i) + kWide <= p_.experts) {
        const auto some = *reinterpret_cast<const Vector<float, kWide>*>(from + expert(i));
#pragma unroll
        for (int j = 0; j < kWide; ++j) logits_[i + j] = some.at[j];
      } else {
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          logits_[i + j] = expert(i + j) < p_.experts ? from[expert(i + j)] : -INFINITY;
        }
      }
    }
  }

  __device__ double score(float logit, double softmax_sum) const {
    if (p_.settings.scoring == Scoring::Sigmoid) return 1 / (1 + exp(-static_cast<double>(logit)));
    if (p_.settings.scoring == Scoring::Softmax) return exp(static_cast<double>(logit) - largest_) / softmax_sum;
    return logit;
  }

  __device__ void rank() {
    if constexpr (kPlain) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) keys_[i] = expert(i) < p_.experts ? key_of(logits_[i]) : 0;
    } else {
      double sum = 0;
      if (p_.settings.scoring == Scoring::Softmax) {
#pragma unroll
        for (int i = 0; i < kEach; ++i)
          sum += expert(i) < p_.experts ? exp(static_cast<double>(logits_[i]) - largest_) : 0;
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int e = expert(i);
        const double value = score(logits_[i], sum) + biases_.at[i];
        keys_[i] = e < p_.experts ? key_of(value) : 0;
        if (chooses_groups(p_.settings) && e < p_.experts) own_.scores[e] = value;
      }
    }
  }

  // `ways` neighbouring lanes score a group together. Experts of groups that are not kept come last.
  __device__ void keep_best_groups() {
    const RouterSettings& s = p_.settings;
    const int size = p_.experts / s.expert_groups;
    int ways = 1;
    while (2 * ways * s.expert_groups <= 32) ways *= 2;
    const int own_group = lane_ / ways;
    double first = -INFINITY, second = -INFINITY;
    __syncwarp();
    if (own_group < s.expert_groups) {
      for (int e = own_group * size + lane_ % ways; e < (own_group + 1) * size; e += ways) {
        const double value = own_.scores[e];
        second = fmax(second, fmin(first, value));
        first = fmax(first, value);
      }
    }
    for (int step = ways / 2; step > 0; step /= 2) {
      const double other_first = __shfl_xor_sync(~0u, first, step), other_second = __shfl_xor_sync(~0u, second, step);
      second = fmax(fmin(first, other_first), fmax(second, other_second));
      first = fmax(first, other_first);
    }
    const double own = s.groups_by_two_best && size > 1 ? first + second : first;
    int better = 0;
    for (int other = 0; other < s.expert_groups; ++other) {
      const double theirs = __shfl_sync(~0u, own, other * ways);
      better += theirs > own || (theirs == own && other < own_group);
    }
    const unsigned kept = __ballot_sync(~0u, own_group < s.expert_groups && better < s.kept_groups);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      // Experts beyond the last group, if any, belong to none.
      const int group = expert(i) / size;
      const bool is_kept = group < s.expert_groups && (kept >> (group * ways) & 1) != 0;
      if (!is_kept && keys_[i] != 0) keys_[i] = kLastKey;
    }
  }

  __device__ float sum_of_exponentials() const {
    float sum = 0;
#pragma unroll
    for (const float logit : logits_) sum += expf(logit - largest_);
    return warp_sum(sum);
  }

  // Leaves choice i and its logit, or its weight of SparseMixer, in the scratch: the best expert that is left, the
  // lower index of equal ones. It loses its key.
  __device__ void take_best(int i) {
    Key best = keys_[0];
#pragma unroll
    for (int e = 1; e < kEach; ++e) best = max(best, keys_[e]);
    const Key top = largest_key(best);
    const int owner = __ffs(static_cast<int>(__ballot_sync(~0u, best == top))) - 1;
    int at = -1;
    float logit = 0;
#pragma unroll
    for (int e = kEach - 1; e >= 0; --e) {
      if (lane_ == owner && keys_[e] == top) at = e, logit = logits_[e];
    }
    if (p_.settings.scoring == Scoring::SparseMixer) logit = sparse_weight(__shfl_sync(~0u, logit, owner));
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (e == at) keys_[e] = 0;
    }
    if (lane_ == owner) own_.chosen[i] = expert(at), own_.weights[i] = logit;
  }

  __device__ float weight_of(float logit, float softmax_sum) const {
    switch (p_.settings.scoring) {
      case Scoring::Softmax:
        return expf(logit - largest_) / softmax_sum;
      case Scoring::Sigmoid:
        return 1 / (1 + expf(-logit));
      case Scoring::SoftmaxOfChosen:
        return expf(logit - largest_);
      case Scoring::SparseMixer:
        return logit;
    }
    return 0;
  }

  // The softmax of a choice with this logit over the experts that are left, itself among them, and lie within the
  // margin of it.
  __device__ float sparse_weight(float logit) const {
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (keys_[i] == 0) continue;
      const double distance = logit - logits_[i];
      if (distance / fmaxf(fabsf(logits_[i]), logit) > p_.settings.margin) continue;
      sum += exp(-distance);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return static_cast<float>(1 / sum);
  }

  const CudaRouterParams& p_;
  const RowScratch& own_;
  const Biases& biases_;
  const int lane_;
  float logits_[kEach];
  Key keys_[kEach];
  float largest_, shared_weight_ = 1;
};

}  // namespace millrace
