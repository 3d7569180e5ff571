// Chooses the kernel for a problem: the fastest measured one, or the one with the best estimate if none was measured.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dataflow/plan_cache.h"
#include "kernels/kernel_set.h"

namespace millrace {

template <class Op>
struct Candidate {
  const Kernel<Op>* kernel = nullptr;
  double estimate_us = 0;
  double measured_us = 0;  // 0: never measured
  double burden = 1;       // Kernel::burden(); weighs measured times in the choice
};

template <class Op>
class Planner {
 public:
  using Problem = typename Op::Problem;

  Planner(const KernelList<Op>& kernels, const Hardware& hardware, const PlanCache* plans, std::string forced)
      : kernels_(kernels), hardware_(hardware), plans_(plans), forced_(std::move(forced)) {
    const auto is_forced = [&](const Kernel<Op>* kernel) { return kernel->name() == forced_; };
    if (!forced_.empty() && std::none_of(kernels.begin(), kernels.end(), is_forced)) {
      fail(ErrorKind::Usage, "--kernel {}={}: no such kernel; this build has {}", Op::kName, forced_, names());
    }
  }

  // All kernels that can run the problem, best first.
  std::vector<Candidate<Op>> rank(const Problem& problem) const {
    std::vector<Candidate<Op>> ranked;
    const auto* measured = plans_ != nullptr ? plans_->find(Op::kName, to_string(problem)) : nullptr;
    for (const auto* kernel : kernels_) {
      const double measured_us = measured != nullptr ? time_of(kernel->name(), *measured) : 0;
      if (measured_us == 0 && is_left_to_measurement(*kernel, problem)) continue;
      if (!kernel->can_run(problem, hardware_)) continue;
      ranked.push_back({kernel, kernel->estimate_us(problem, hardware_), measured_us, kernel->burden(problem)});
    }
    std::stable_sort(ranked.begin(), ranked.end(), [&](const auto& a, const auto& b) { return before(a, b); });
    return ranked;
  }

  // Chooses and stores the kernel for a problem; null: no kernel can run it. Not for use inside a step.
  const Kernel<Op>* plan(const Problem& problem) {
    if (const Kernel<Op>* known = planned(problem)) return known;
    const auto* kernel = decide(problem);
    if (kernel != nullptr) chosen_.emplace_back(problem, kernel);
    return kernel;
  }

  // The stored choice of plan(); null: none. Does not allocate or estimate, so a step may call it.
  const Kernel<Op>* planned(const Problem& problem) {
    for (size_t i = 0; i < chosen_.size(); ++i) {
      if (!(chosen_[i].first == problem)) continue;
      std::swap(chosen_[i], chosen_[0]);  // layers of one step repeat the same problem, so the next lookup hits first
      return chosen_[0].second;
    }
    return nullptr;
  }

  // Expected time for a problem of any size: the kernel's estimate, scaled by measured / estimated of the problem's
  // bucket.
  double expected_us(const Kernel<Op>& kernel, const Problem& problem) const {
    const double estimate = kernel.estimate_us(problem, hardware_);
    if (plans_ == nullptr || !plans_->has(Op::kName)) return estimate;
    if constexpr (requires { problem.bucketed(); }) {
      for (const auto& candidate : rank(problem.bucketed())) {
        if (candidate.kernel != &kernel || candidate.measured_us == 0) continue;
        return estimate * candidate.measured_us / candidate.estimate_us;
      }
    }
    return estimate;
  }

  bool is_forced(const Kernel<Op>& kernel) const { return kernel.name() == forced_; }
  const Hardware& hardware() const { return hardware_; }

  const std::string& forced() const { return forced_; }

  // True if a kernel is forced and no planned problem uses it.
  bool misses_forced() const {
    const auto takes_it = [&](const auto& chosen) { return is_forced(*chosen.second); };
    return !forced_.empty() && std::none_of(chosen_.begin(), chosen_.end(), takes_it);
  }

 private:
  // Order: the forced kernel, measured before unmeasured kernels, then the faster one.
  bool before(const Candidate<Op>& a, const Candidate<Op>& b) const {
    const auto key = [&](const Candidate<Op>& c) {
      const bool measured = c.measured_us > 0;
      return std::tuple(c.kernel->name() != forced_, !measured, measured ? c.measured_us * c.burden : c.estimate_us);
    };
    return key(a) < key(b);
  }

  static double time_of(std::string_view kernel, const std::vector<Measurement>& measured) {
    const auto found =
        std::find_if(measured.begin(), measured.end(), [&](const auto& m) { return m.kernel == kernel; });
    return found == measured.end() ? 0 : found->us;
  }

  bool is_left_to_measurement(const Kernel<Op>& kernel, const Problem& problem) const {
    return !is_forced(kernel) && kernel.variant_of(problem, hardware_) != nullptr;
  }

  const Kernel<Op>* decide(const Problem& problem) const {
    if (plans_ != nullptr && plans_->has(Op::kName)) {
      const auto ranked = rank(problem);
      return ranked.empty() ? nullptr : ranked.front().kernel;
    }
    Candidate<Op> best;
    for (const auto* kernel : kernels_) {
      if (is_left_to_measurement(*kernel, problem) || !kernel->can_run(problem, hardware_)) continue;
      const Candidate<Op> candidate{kernel, kernel->estimate_us(problem, hardware_), 0};
      if (best.kernel == nullptr || before(candidate, best)) best = candidate;
    }
    return best.kernel;
  }

  std::string names() const {
    std::string all;
    for (const auto* kernel : kernels_) all += (all.empty() ? "" : ", ") + std::string(kernel->name());
    return all;
  }

  const KernelList<Op>& kernels_;
  const Hardware& hardware_;
  const PlanCache* plans_;
  std::string forced_;
  std::vector<std::pair<Problem, const Kernel<Op>*>> chosen_;
};

// The kernel with the least weighted sum of times over all problems; null: no kernel can run them all.
template <class Op>
const Kernel<Op>* fastest_for_all(const KernelList<Op>& kernels, const Hardware& hardware,
                                  const std::vector<std::pair<typename Op::Problem, double>>& weighed) {
  const Kernel<Op>* best = nullptr;
  double least_us = 0;
  for (const auto* kernel : kernels) {
    const auto runs = [&](const auto& problem) { return kernel->can_run(problem.first, hardware); };
    if (!std::all_of(weighed.begin(), weighed.end(), runs)) continue;
    double us = 0;
    for (const auto& [problem, weight] : weighed) us += weight * kernel->estimate_us(problem, hardware);
    if (best != nullptr && us >= least_us) continue;
    best = kernel;
    least_us = us;
  }
  return best;
}

}  // namespace millrace
