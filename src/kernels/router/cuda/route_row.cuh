// Chooses the experts of one row and weighs them. A warp holds the row: lane l has the experts l, l + 32, ...
//
// Choices are made in double precision, as the reference makes them, so that close scores are not ordered by rounding.
// Without a bias and without groups the scores grow with the logits, and the logits themselves are compared.
#pragma once

#include <cstdint>

#include "kernels/cuda/values.cuh"
#include "kernels/router/router.h"

namespace millrace {

struct CudaRouterParams {
  RouterSettings settings;
  const float* logits;
  int64_t stride;  // of the logits
  const float *choice_bias, *expert_scale;
  int experts, rows;  // experts without shared ones
  int32_t* chosen;
  float* weights;
};

inline constexpr int kMostExperts = RouterOp::kMostGroups, kMostExpertGroups = 32;

__host__ __device__ inline bool chooses_groups(const RouterSettings& s) { return s.kept_groups < s.expert_groups; }

// Maps scores to integers of the same order. NaN becomes the least score; 0 is no expert at all.
__device__ inline uint64_t ordered(double score) {
  const auto bits = static_cast<uint64_t>(__double_as_longlong(score));
  if (score != score) return 1;
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}

// kEach: experts of a lane.
template <int kEach>
class RowOfExperts {
 public:
  // `scores`: shared memory of the warp, [experts], used if the settings have groups.
  __device__ RowOfExperts(const CudaRouterParams& p, int row, double* scores)
      : p_(p), lane_(static_cast<int>(threadIdx.x) % 32), scores_(scores) {
    const float* from = p.logits + row * p.stride;
#pragma unroll
    for (int i = 0; i < kEach; ++i) logits_[i] = expert(i) < p.experts ? from[expert(i)] : -INFINITY;
    largest_ = -INFINITY;
#pragma unroll
    for (const float logit : logits_) largest_ = fmaxf(largest_, logit);
    largest_ = warp_max(largest_);
    if (p.settings.gates_shared) shared_weight_ = 1 / (1 + expf(-from[p.experts]));
  }

  // Fills chosen and weights [pairs_of_row()], in global or shared memory.
  __device__ void route(int32_t* chosen, float* weights) {
    rank();
    if (chooses_groups(p_.settings)) keep_best_groups();
    const float softmax_sum = p_.settings.scoring == Scoring::Softmax ? sum_of_exponentials() : 1;
    float sum = 0;
    for (int i = 0; i < p_.settings.per_row; ++i) {
      const Choice choice = take_best();
      const float weight = weight_of(choice, softmax_sum);
      sum += weight;
      if (lane_ == 0) {
        chosen[i] = choice.expert;
        weights[i] = weight;
      }
    }
    const RouterSettings& s = p_.settings;
    const bool divides = s.scoring == Scoring::SoftmaxOfChosen || (s.renormalize && s.scoring != Scoring::SparseMixer);
    const float divisor = divides ? fmaxf(sum, s.least_sum) + s.sum_epsilon : 1;
    __syncwarp();
    for (int i = lane_; i < s.per_row; i += 32) {
      const float factor = p_.expert_scale != nullptr ? p_.expert_scale[chosen[i]] : 1;
      weights[i] = weights[i] / divisor * (s.scale * factor);
    }
    for (int i = lane_; i < s.shared; i += 32) {
      chosen[s.per_row + i] = p_.experts + i;
      weights[s.per_row + i] = shared_weight_;
    }
  }

 private:
  struct Choice {
    int expert;
    float logit;
  };

  __device__ int expert(int i) const { return 32 * i + lane_; }

  __device__ double score(float logit, double softmax_sum) const {
    if (p_.settings.scoring == Scoring::Sigmoid) return 1 / (1 + exp(-static_cast<double>(logit)));
    if (p_.settings.scoring == Scoring::Softmax) return exp(static_cast<double>(logit) - largest_) / softmax_sum;
    return logit;
  }

  // keys_: the order of choice.
  __device__ void rank() {
    const bool plain = p_.choice_bias == nullptr && !chooses_groups(p_.settings);
    double sum = 0;
    if (!plain && p_.settings.scoring == Scoring::Softmax) {
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        sum += expert(i) < p_.experts ? exp(static_cast<double>(logits_[i]) - largest_) : 0;
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = expert(i);
      double value = plain ? static_cast<double>(logits_[i]) : score(logits_[i], sum);
      if (p_.choice_bias != nullptr && e < p_.experts) value += p_.choice_bias[e];
      keys_[i] = e < p_.experts ? ordered(value) : 0;
      if (chooses_groups(p_.settings) && e < p_.experts) scores_[e] = value;
    }
  }

  // Lane g scores group g; experts of the other groups lose their keys.
  __device__ void keep_best_groups() {
    const RouterSettings& s = p_.settings;
    const int size = p_.experts / s.expert_groups;
    double first = -INFINITY, second = -INFINITY;
    __syncwarp();
    if (lane_ < s.expert_groups) {
      for (int e = lane_ * size; e < (lane_ + 1) * size; ++e) {
        const double value = scores_[e];
        second = fmax(second, fmin(first, value));
        first = fmax(first, value);
      }
    }
    const double own = s.groups_by_two_best && size > 1 ? first + second : first;
    int better = 0;
    for (int other = 0; other < s.expert_groups; ++other) {
      const double theirs = __shfl_sync(~0u, own, other);
      better += theirs > own || (theirs == own && other < lane_);
    }
    const unsigned kept = __ballot_sync(~0u, lane_ < s.expert_groups && better < s.kept_groups);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      // Experts beyond the last group, if any, belong to none.
      const int group = expert(i) / size;
      if (group >= s.expert_groups || (kept >> group & 1) == 0) keys_[i] = 0;
    }
  }

  __device__ float sum_of_exponentials() const {
    float sum = 0;
#pragma unroll
    for (const float logit : logits_) sum += expf(logit - largest_);
    return warp_sum(sum);
  }

  // The best expert that is left, the lower index of equal ones; it loses its key.
  __device__ Choice take_best() {
    uint64_t best = 0;
    int index = kMostExperts;
    float logit = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (keys_[i] > best) best = keys_[i], index = expert(i), logit = logits_[i];
    }
    const auto high = static_cast<uint32_t>(best >> 32), low = static_cast<uint32_t>(best);
    const uint32_t top = __reduce_max_sync(~0u, high);
    const uint32_t bottom = __reduce_max_sync(~0u, high == top ? low : 0u);
    const bool ties = best != 0 && high == top && low == bottom;
    const auto winner = static_cast<int>(__reduce_min_sync(~0u, ties ? static_cast<unsigned>(index) : kMostExperts));
    if (winner == kMostExperts) return {0, 0};  // fewer experts may be chosen than asked for
    logit = __shfl_sync(~0u, logit, winner % 32);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (expert(i) == winner) taken_ |= 1u << i, keys_[i] = 0;
    }
    return {winner, logit};
  }

  __device__ float weight_of(const Choice& choice, float softmax_sum) const {
    switch (p_.settings.scoring) {
      case Scoring::Softmax:
        return expf(choice.logit - largest_) / softmax_sum;
      case Scoring::Sigmoid:
        return 1 / (1 + expf(-choice.logit));
      case Scoring::SoftmaxOfChosen:
        return expf(choice.logit - largest_);
      case Scoring::SparseMixer:
        return sparse_weight(choice);
    }
    return 0;
  }

  // The softmax of a choice over the experts that were left and lie within the margin of it. The choice itself counts.
  __device__ float sparse_weight(const Choice& choice) const {
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = expert(i);
      if (e >= p_.experts || ((taken_ >> i & 1) != 0 && e != choice.expert)) continue;
      const double distance = choice.logit - logits_[i];
      if (distance / fmaxf(fabsf(logits_[i]), choice.logit) > p_.settings.margin) continue;
      sum += exp(-distance);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return static_cast<float>(1 / sum);
  }

  const CudaRouterParams& p_;
  const int lane_;
  double* scores_;
  float logits_[kEach];
  uint64_t keys_[kEach];  // 0: may not be chosen
  uint32_t taken_ = 0;    // bit i: expert(i) was chosen
  float largest_, shared_weight_ = 1;
};

}  // namespace millrace
