// The loss by the choice of kernels: how much longer the chosen kernel takes than the best, which an exhaustive search
// finds.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "dataflow/tuner.h"
#include "hardware/this_machine.h"

namespace millrace {

struct RegretOptions {
  std::string device = "cpu", formats;
  std::vector<std::string> shapes;
  bool experts = false;
  double skew = 0;
  int threads = 0, rounds = 15;
  int64_t most_rows = 256;
};

// In percent. Untuned, the estimates alone choose; tuned, a quick measurement of the best few chooses.
struct Regrets {
  std::vector<double> untuned, tuned;

  void add(const Regrets& other) {
    untuned.insert(untuned.end(), other.untuned.begin(), other.untuned.end());
    tuned.insert(tuned.end(), other.tuned.begin(), other.tuned.end());
  }
};

// The device, with its kernels and two timers: one as `millrace tune` uses it and a thorough one.
class RegretSearch {
 public:
  explicit RegretSearch(const RegretOptions& options)
      : options_(options),
        device_(open_device({.choice = parse_device(options.device).value_or(DeviceChoice::Cpu),
                             .threads = options.threads,
                             .measure = true})),
        kernels_(device_->is_host() ? cpu_kernels() : cuda_kernels()),
        pool_(device_->is_host() ? hardware().threads : 4),
        quick_(*device_, pool_),
        thorough_(*device_, pool_, {options.rounds, 0.05, 3.0, 5.0}) {}

  const Hardware& hardware() const { return device_->hardware(); }
  // Of all held-out problems with weights of one format.
  Regrets search(DType format) { return options_.experts ? search_experts(format) : search_linear(format); }

 private:
  Regrets search_linear(DType format);
  Regrets search_experts(DType format);

  template <class Op, class QuickTimes, class ExactTimes>
  void add_problem(const Planner<Op>& planner, const typename Op::Problem& problem, QuickTimes quick_times,
                   ExactTimes exact_times, Regrets& regrets) const;
  void add(const std::string& problem, std::string_view untuned, double estimate_us, std::string_view tuned,
           const std::vector<Measurement>& exact, Regrets& regrets) const;

  const RegretOptions& options_;
  const std::unique_ptr<Device> device_;
  const KernelSet& kernels_;
  ThreadPool pool_;
  KernelTimer quick_, thorough_;
};

template <class Op, class QuickTimes, class ExactTimes>
void RegretSearch::add_problem(const Planner<Op>& planner, const typename Op::Problem& problem, QuickTimes quick_times,
                               ExactTimes exact_times, Regrets& regrets) const {
  constexpr double kHopeless = 20;  // times the best estimate
  std::vector<const Kernel<Op>*> all;
  const auto ranked = planner.rank(problem);
  for (const auto& candidate : ranked) {
    if (candidate.kernel->name() != "reference" && candidate.estimate_us < kHopeless * ranked.front().estimate_us)
      all.push_back(candidate.kernel);
  }
  const std::vector<Measurement> quick = quick_times(worth_measuring(planner, problem));
  add(to_string(problem), ranked.front().kernel->name(), ranked.front().estimate_us, quick.front().kernel,
      exact_times(all), regrets);
}

}  // namespace millrace
