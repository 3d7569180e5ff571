// The router with every score computed once. Same arithmetic as the reference, so the same choices and weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/router/router.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

constexpr int64_t kMostExperts = 1024;  // scores lie on the stack
constexpr double kNever = -std::numeric_limits<double>::infinity();

class Row {
 public:
  Row(const RouterOp::Args& args, int64_t row)
      : args_(args),
        settings_(args.settings),
        logits_(args.logits.row<float>(row)),
        experts_(args.logits.cols - settings_.gates_shared),
        chosen_(args.routing.chosen + row * args.routing.per_row),
        weights_(args.routing.weights + row * args.routing.per_row) {}

  void route() {
    score();
    choose();
    weigh();
    for (int i = 0; i < settings_.per_row; ++i) {
      weights_[i] *= settings_.scale * (args_.expert_scale != nullptr ? args_.expert_scale[chosen_[i]] : 1);
    }
    for (int i = 0; i < settings_.shared; ++i) {
      chosen_[settings_.per_row + i] = static_cast<int32_t>(experts_ + i);
      weights_[settings_.per_row + i] = shared_weight();
    }
  }

 private:
  float shared_weight() const {
    return settings_.gates_shared ? static_cast<float>(1 / (1 + std::exp(-double(logits_[experts_])))) : 1;
  }

  void score() {
    largest_ = *std::max_element(logits_, logits_ + experts_);
    if (settings_.scoring == Scoring::Softmax) {
      double sum = 0;
      for (int64_t e = 0; e < experts_; ++e) sum += scores_[e] = std::exp(logits_[e] - largest_);
      for (int64_t e = 0; e < experts_; ++e) scores_[e] /= sum;
    } else if (settings_.scoring == Scoring::Sigmoid) {
      for (int64_t e = 0; e < experts_; ++e) scores_[e] = 1 / (1 + std::exp(-double(logits_[e])));
    } else {
      std::copy(logits_, logits_ + experts_, scores_);
    }
  }

  double choice_score(int64_t e) const {
    return scores_[e] + (args_.choice_bias != nullptr ? args_.choice_bias[e] : 0);
  }

  double group_score(int64_t begin, int64_t end) const {
    double first = kNever, second = kNever;
    for (int64_t e = begin; e < end; ++e) {
      const double s = choice_score(e);
      second = std::max(second, std::min(first, s));
      first = std::max(first, s);
    }
    return settings_.groups_by_two_best && end - begin > 1 ? first + second : first;
  }

  // The best experts, sorted. An expert is inserted behind those of the same score, which have lower indices.
  void choose() {
    const int64_t size = experts_ / settings_.expert_groups;
    const bool some_groups = settings_.kept_groups < settings_.expert_groups;
    if (some_groups) {
      for (int64_t g = 0; g < settings_.expert_groups; ++g) group_scores_[g] = group_score(g * size, (g + 1) * size);
    }
    int count = 0;
    for (int64_t group = 0; group < settings_.expert_groups; ++group) {
      if (some_groups && !is_kept(group)) continue;
      for (int64_t e = group * size; e < (group + 1) * size; ++e) insert(e, count);
    }
    std::fill(chosen_ + count, chosen_ + settings_.per_row, 0);  // as the reference, if the groups have too few experts
  }

  void insert(int64_t e, int& count) {
    const double score = choice_score(e);
    if (count == settings_.per_row && !(score > choice_score(chosen_[count - 1]))) return;
    int at = count < settings_.per_row ? count++ : count - 1;
    for (; at > 0 && score > choice_score(chosen_[at - 1]); --at) chosen_[at] = chosen_[at - 1];
    chosen_[at] = static_cast<int32_t>(e);
  }

  // Whether fewer than kept_groups groups are better; of equal groups the lower index is better.
  bool is_kept(int64_t group) const {
    int better = 0;
    for (int64_t other = 0; other < settings_.expert_groups; ++other) {
      better += group_scores_[other] > group_scores_[group] ||
                (group_scores_[other] == group_scores_[group] && other < group);
    }
    return better < settings_.kept_groups;
  }

  void weigh() const {
    double sum = 0;
    for (int i = 0; i < settings_.per_row; ++i) {
      const int32_t e = chosen_[i];
      const double weight =
          settings_.scoring == Scoring::SoftmaxOfChosen ? std::exp(logits_[e] - largest_) : scores_[e];
      weights_[i] = static_cast<float>(weight);
      sum += weight;
    }
    if (settings_.scoring != Scoring::SoftmaxOfChosen && !settings_.renormalize) return;
    const double divisor = std::max<double>(sum, settings_.least_sum) + settings_.sum_epsilon;
    for (int i = 0; i < settings_.per_row; ++i) weights_[i] = static_cast<float>(weights_[i] / divisor);
  }

  const RouterOp::Args& args_;
  const RouterSettings& settings_;
  const float* logits_;
  int64_t experts_;
  int32_t* chosen_;
  float* weights_;
  double largest_ = 0;
  double scores_[kMostExperts], group_scores_[kMostExperts];
};

class CpuRouter final : public Kernel<RouterOp> {
 public:
  std::string_view name() const override { return "once"; }
  bool can_run(const Problem& p, const Hardware& hardware) const override {
    // The reference computes the scores of a SparseMixer once, too.
    return hardware.device == DeviceKind::Cpu && p.experts <= kMostExperts &&
           p.settings.scoring != Scoring::SparseMixer;
  }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(kElementsOfAScore * p.rows * p.experts);
  }

  void run(const Args& args, const Executor& executor) const override {
    for_rows(executor, args.routing.rows, kElementsOfAScore * args.logits.cols, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) Row(args, row).route();
    });
    sort_by_group(args.routing);
  }

 private:
  static constexpr int64_t kElementsOfAScore = 8;  // an exponential and a few comparisons
};

}  // namespace

KernelList<RouterOp> RouterOp::cpu() {
  static const CpuRouter kernel;
  return {&kernel, reference()};
}

}  // namespace millrace
