#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "kernels/router/router.h"
#include "kernels/row_work.h"

namespace millrace {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// One row of a router. Experts that may not be chosen have the choice score -inf.
class Row {
 public:
  Row(const RouterOp::Args& args, int64_t row)
      : settings_(args.settings),
        args_(args),
        logits_(args.logits.row<float>(row)),
        experts_(args.logits.cols - settings_.gates_shared),
        chosen_(args.routing.chosen + row * args.routing.per_row),
        weights_(args.routing.weights + row * args.routing.per_row) {}

  void route() const {
    if (settings_.scoring == Scoring::SparseMixer) {
      for (int i = 0; i < settings_.per_row; ++i) mix(i);
    } else {
      for (int i = 0; i < settings_.per_row; ++i) chosen_[i] = best_left(i);
      weigh();
    }
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

  double largest_logit() const { return *std::max_element(logits_, logits_ + experts_); }

  double softmax_sum() const {
    double sum = 0;
    for (int64_t e = 0; e < experts_; ++e) sum += std::exp(logits_[e] - largest_logit());
    return sum;
  }

  double score(int64_t e) const {
    if (settings_.scoring == Scoring::Sigmoid) return 1 / (1 + std::exp(-double(logits_[e])));
    if (settings_.scoring == Scoring::Softmax) return std::exp(logits_[e] - largest_logit()) / softmax_sum();
    return logits_[e];
  }

  double choice_score(int64_t e) const { return score(e) + (args_.choice_bias != nullptr ? args_.choice_bias[e] : 0); }

  double group_score(int64_t group) const {
    const int64_t size = experts_ / settings_.expert_groups;
    double first = kNever, second = kNever;
    for (int64_t e = group * size; e < (group + 1) * size; ++e) {
      const double s = choice_score(e);
      second = std::max(second, std::min(first, s));
      first = std::max(first, s);
    }
    return settings_.groups_by_two_best && size > 1 ? first + second : first;
  }

  // Whether fewer than kept_groups groups are better; of equal groups the lower index is better.
  bool is_kept(int64_t group) const {
    const double own = group_score(group);
    int better = 0;
    for (int64_t other = 0; other < settings_.expert_groups; ++other) {
      const double score = group_score(other);
      better += score > own || (score == own && other < group);
    }
    return better < settings_.kept_groups;
  }

  bool is_taken(int64_t e, int count) const { return std::find(chosen_, chosen_ + count, e) != chosen_ + count; }

  int32_t best_left(int taken) const {
    int64_t best = -1;
    double best_score = 0;
    for (int64_t group = 0; group < settings_.expert_groups; ++group) {
      if (settings_.kept_groups < settings_.expert_groups && !is_kept(group)) continue;
      const int64_t size = experts_ / settings_.expert_groups;
      for (int64_t e = group * size; e < (group + 1) * size; ++e) {
        if (is_taken(e, taken)) continue;
        const double score = choice_score(e);
        if (best < 0 || score > best_score) best = e, best_score = score;
      }
    }
    return static_cast<int32_t>(std::max<int64_t>(best, 0));
  }

  void weigh() const {
    const int count = settings_.per_row;
    double sum = 0;
    for (int i = 0; i < count; ++i) {
      const double weight = settings_.scoring == Scoring::SoftmaxOfChosen
                                ? std::exp(logits_[chosen_[i]] - largest_logit())
                                : score(chosen_[i]);
      weights_[i] = static_cast<float>(weight);
      sum += weight;
    }
    if (settings_.scoring != Scoring::SoftmaxOfChosen && !settings_.renormalize) return;
    const double divisor = std::max<double>(sum, settings_.least_sum) + settings_.sum_epsilon;
    for (int i = 0; i < count; ++i) weights_[i] = static_cast<float>(weights_[i] / divisor);
  }

  void mix(int i) const {
    int64_t best = -1;
    for (int64_t e = 0; e < experts_; ++e) {
      if (!is_taken(e, i) && (best < 0 || logits_[e] > logits_[best])) best = e;
    }
    double sum = 0;
    for (int64_t e = 0; e < experts_; ++e) {
      const double distance = logits_[best] - logits_[e];
      if (is_taken(e, i) || distance / std::max(std::abs(logits_[e]), logits_[best]) > settings_.margin) continue;
      sum += std::exp(-distance);
    }
    chosen_[i] = static_cast<int32_t>(best);
    weights_[i] = static_cast<float>(1 / sum);
  }

  const RouterSettings& settings_;
  const RouterOp::Args& args_;
  const float* logits_;
  int64_t experts_;
  int32_t* chosen_;
  float* weights_;
};

class ReferenceRouter final : public Kernel<RouterOp> {
 public:
  std::string_view name() const override { return "reference"; }
  bool can_run(const Problem&, const Hardware& hardware) const override { return hardware.device == DeviceKind::Cpu; }
  double estimate_us(const Problem& p, const Hardware&) const override {
    return scalar_work_us(p.rows * p.experts * p.experts * p.settings.per_row);
  }

  void run(const Args& args, const Executor& executor) const override {
    for_rows(executor, args.routing.rows, args.logits.cols * args.logits.cols, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) Row(args, row).route();
    });
    sort_by_group(args.routing);
  }
};

}  // namespace

void sort_by_group(const Routing& r) {
  std::fill(r.offsets, r.offsets + r.groups + 1, 0);
  for (int64_t pair = 0; pair < r.pairs(); ++pair) ++r.offsets[r.chosen[pair]];
  int32_t before = 0;  // offsets[g] becomes the first position of g, then its end, then is shifted by one group
  for (int64_t g = 0; g < r.groups; ++g) before += std::exchange(r.offsets[g], before);
  for (int64_t pair = 0; pair < r.pairs(); ++pair) r.order[r.offsets[r.chosen[pair]]++] = static_cast<int32_t>(pair);
  for (int64_t g = r.groups; g > 0; --g) r.offsets[g] = r.offsets[g - 1];
  r.offsets[0] = 0;
}

const Kernel<RouterOp>* RouterOp::reference() {
  static const ReferenceRouter kernel;
  return &kernel;
}

std::string to_string(const RouterOp::Problem& p) {
  const RouterSettings& s = p.settings;
  constexpr std::array kScorings{"softmax", "sigmoid", "softmax-of-chosen", "sparse-mixer"};
  std::string text = fmt::format("router {} {} of {} rows={}", kScorings[static_cast<size_t>(s.scoring)], s.per_row,
                                 p.experts, p.rows);
  if (s.shared > 0) text += fmt::format(" shared={}{}", s.shared, s.gates_shared ? " gated" : "");
  if (s.expert_groups > 1) text += fmt::format(" groups={}/{}", s.kept_groups, s.expert_groups);
  return text;
}

}  // namespace millrace
