#include "dataflow/kernel_timer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "hardware/clock.h"

namespace millrace {
namespace {

std::vector<float> random_numbers(int64_t count) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> all(static_cast<size_t>(count));
  std::generate(all.begin(), all.end(), [&] { return normal(random); });
  return all;
}

Matrix as_matrix(std::vector<float>& values, int64_t rows, int64_t cols) {
  return {DType::F32, rows, cols, cols, reinterpret_cast<std::byte*>(values.data())};
}

}  // namespace

KernelTimer::KernelTimer(const Hardware& hardware, ThreadPool& pool, TimingEffort effort)
    : hardware_(hardware), pool_(pool), effort_(effort) {}

template <class Op, class NextArgs>
std::vector<Measurement> KernelTimer::race(const typename Op::Problem& problem,
                                           std::span<const Kernel<Op>* const> kernels, NextArgs next_args) {
  constexpr int kFirstRounds = 2, kMostRounds = 200;
  size_t workspace_bytes = 64;
  for (const auto* kernel : kernels) {
    workspace_bytes = std::max(workspace_bytes, kernel->workspace_bytes(problem, hardware_));
  }
  Arena workspace("kernel workspace", Arena::padded(workspace_bytes));
  const Executor executor{&pool_, workspace.take(workspace_bytes)};

  std::vector<double> best(kernels.size(), std::numeric_limits<double>::infinity());
  const auto began = Clock::now();
  for (int round = 0; round < kMostRounds; ++round) {
    const double leader = *std::min_element(best.begin(), best.end());
    const double seconds = seconds_since(began);
    if (round >= effort_.least_rounds && seconds > effort_.seconds) break;
    if (round >= kFirstRounds && seconds > effort_.most_seconds) break;
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (round >= kFirstRounds && best[i] > effort_.hopeless * leader) continue;
      const auto args = next_args();
      const auto start = Clock::now();
      kernels[i]->run(args, executor);
      best[i] = std::min(best[i], seconds_since(start) * 1e6);
    }
  }
  std::vector<Measurement> all;
  for (size_t i = 0; i < kernels.size(); ++i) all.push_back({std::string(kernels[i]->name()), best[i]});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.us < b.us; });
  return all;
}

std::vector<Measurement> KernelTimer::time(const LinearProblem& p, std::span<const LinearKernel* const> kernels,
                                           ColdWeights& weights) {
  auto x = random_numbers(p.m * p.k), y = random_numbers(p.m * p.n);
  LinearArgs args{as_matrix(x, p.m, p.k), nullptr, nullptr, as_matrix(y, p.m, p.n), p.accumulate};
  return race<LinearOp>(p, kernels, [&] {
    args.weights = weights.next();
    return args;
  });
}

std::vector<Measurement> KernelTimer::time(const AttentionProblem& p, std::span<const AttentionKernel* const> kernels) {
  ColdKeys keys(p, hardware_);
  const int64_t width = int64_t{p.heads} * p.head_dim;
  auto q = random_numbers(p.rows * width), out = q;
  AttentionArgs args;
  args.q = as_matrix(q, p.rows, width);
  args.out = as_matrix(out, p.rows, width);
  args.kv = keys.layer();
  args.heads = p.heads;
  args.scale = 1 / std::sqrt(static_cast<float>(p.head_dim));
  args.softcap = p.softcap ? 50.0f : 0.0f;
  args.window = p.window;
  return race<AttentionOp>(p, kernels, [&] {
    args.sequences = keys.next();
    return args;
  });
}

}  // namespace millrace
