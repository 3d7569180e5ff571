#include "dataflow/kernel_timer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "hardware/clock.h"
#include "tensor/quantize.h"

namespace millrace {
namespace {

// Random activations in device memory.
class Activity {
 public:
  Activity(int64_t rows, int64_t cols, DType dtype, Device& device)
      : arena_("activations to time kernels with", static_cast<size_t>(rows) * row_bytes(dtype, padded(cols)),
               device.memory()),
        matrix_(arena_.matrix(dtype, rows, padded(cols))) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(padded(cols)));
    std::vector<std::byte> bytes(row_bytes(dtype, padded(cols)));
    for (int64_t i = 0; i < rows; ++i) {
      if (i < kRandomRows) {
        std::generate(row.begin(), row.end(), [&] { return normal(random); });
        quantize_row(dtype, row.data(), bytes.data(), padded(cols));
      }
      device.memory().write(matrix_.data + static_cast<size_t>(i) * bytes.size(), bytes.data(), bytes.size());
    }
    matrix_.cols = cols;
  }
  Matrix matrix() const { return matrix_; }

 private:
  static constexpr int64_t kRandomRows = 64;
  static int64_t padded(int64_t cols) { return (cols + 7) / 8 * 8; }
  Arena arena_;
  Matrix matrix_;
};

// Null if recording fails, for example for lack of memory.
std::unique_ptr<Recording> record(Device& device, const std::function<void()>& launch) {
  if (!device.begin_recording()) return nullptr;
  try {
    launch();
  } catch (...) {
    device.drop_recording();
    throw;
  }
  return device.end_recording();
}

}  // namespace

KernelTimer::KernelTimer(Device& device, ThreadPool& pool, TimingEffort effort)
    : device_(device), hardware_(device.hardware()), pool_(pool), effort_(effort) {}

template <class Op, class NextArgs>
double KernelTimer::recorded_us(const Kernel<Op>& kernel, const Executor& executor, NextArgs& next_args) {
  constexpr int kLaunches = 20, kReplays = 3;
  const auto launch = [&] {
    for (int i = 0; i < kLaunches; ++i) kernel.run(next_args(), executor);
  };
  kernel.run(next_args(),
             executor);  // a first run, because kernels may initialize there and a recording must not contain that
  device_.finish();
  const auto recording = record(device_, launch);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kReplays; ++i) {
    const auto start = Clock::now();
    recording != nullptr ? recording->replay() : launch();
    device_.finish();
    if (i > 0) best = std::min(best, seconds_since(start) * 1e6 / kLaunches);
  }
  return best;
}

template <class Op, class NextArgs>
std::vector<Measurement> KernelTimer::race(const typename Op::Problem& problem,
                                           std::span<const Kernel<Op>* const> kernels, NextArgs next_args) {
  constexpr int kFirstRounds = 2, kMostRounds = 200;
  size_t workspace_bytes = 64;
  for (const auto* kernel : kernels) {
    workspace_bytes = std::max(workspace_bytes, kernel->workspace_bytes(problem, hardware_));
  }
  Arena workspace("kernel workspace", Arena::padded(workspace_bytes), device_.memory());
  const Executor executor{&pool_, workspace.take(workspace_bytes), device_.queue(), &hardware_,
                          starts_early(hardware_)};
  if (!device_.is_host()) {
    std::vector<Measurement> all;
    for (const auto* kernel : kernels) {
      device_.clear(executor.workspace, workspace_bytes);
      all.push_back({std::string(kernel->name()), recorded_us(*kernel, executor, next_args)});
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.us < b.us; });
    return all;
  }

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
  const Activity x(p.m, p.k, p.x, device_), y(p.m, p.gated ? p.n / 2 : p.n, p.x, device_);
  LinearArgs args{x.matrix(), nullptr, nullptr, y.matrix(), /*accumulate=*/false, p.gated};
  return race<LinearOp>(p, kernels, [&] {
    args.weights = weights.next();
    return args;
  });
}

std::vector<Measurement> KernelTimer::time(const GroupedLinearProblem& p,
                                           std::span<const Kernel<GroupedLinearOp>* const> kernels,
                                           ColdExperts& experts, double skew) {
  const Activity x(p.sum ? p.pairs() : p.rows, p.k, p.x, device_);
  const Activity y(p.sum ? p.rows : p.pairs(), p.gated ? p.n / 2 : p.n, p.sum ? DType::F32 : p.x, device_);
  RandomRoutings routings(p, device_, skew);
  GroupedLinearArgs args{.x = x.matrix(), .gated = p.gated, .sum = p.sum, .y = y.matrix()};
  return race<GroupedLinearOp>(p, kernels, [&] {
    args.weights = experts.next();
    args.routing = routings.next();
    return args;
  });
}

std::vector<Measurement> KernelTimer::time(const AttentionProblem& p, std::span<const AttentionKernel* const> kernels) {
  ColdKeys keys(p, device_);
  const DType fast = is_quantized(p.kv) ? DType::BF16 : p.kv;
  const DType type = device_.is_host() || p.precision == Precision::Exact ? DType::F32 : fast;
  const Activity q(p.rows, int64_t{p.heads} * p.key_dim, type, device_);
  const Activity out(p.rows, int64_t{p.heads} * p.value_dim, type, device_);
  AttentionArgs args;
  args.q = q.matrix();
  args.out = out.matrix();
  args.kv = keys.layer();
  args.heads = p.heads;
  args.scale = 1 / std::sqrt(static_cast<float>(p.key_dim));
  args.softcap = p.softcap ? 50.0f : 0.0f;
  args.window = p.window;
  const std::vector<float> maxima(static_cast<size_t>(p.heads));  // zeros: scores of random keys are near 0
  Arena phi("maxima to time kernels with", maxima.size() * sizeof(float), device_.memory());
  if (p.calibrated || p.sinks) {
    std::byte* placed = phi.take(maxima.size() * sizeof(float));
    device_.memory().write(placed, reinterpret_cast<const std::byte*>(maxima.data()), maxima.size() * sizeof(float));
    const auto* zeros = reinterpret_cast<const float*>(placed);
    if (p.calibrated) args.phi = zeros;
    if (p.sinks) args.sinks = zeros;
  }
  return race<AttentionOp>(p, kernels, [&] {
    const ColdKeys::Turn turn = keys.next();
    args.sequences = turn.slices;
    args.tables = turn.tables;
    return args;
  });
}

}  // namespace millrace
