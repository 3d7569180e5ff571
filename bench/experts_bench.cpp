// Times grouped linear layers beside the same products as separate linear layers: experts_bench [FORMAT] [THREADS]
//
// The shapes are those of OLMoE: 64 experts of 2 x 1024 rows, 8 per token. A contender's time is the minimum of some
// interleaved runs, summed over some routings. Percentages are of the measured read bandwidth. The last column divides
// the time of one linear layer per active expert by the kernel's.
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "dataflow/cold_inputs.h"
#include "dataflow/planner.h"
#include "experts.h"
#include "hardware/device.h"
#include "hardware/this_machine.h"

namespace millrace {
namespace {

constexpr int64_t kGroups = 64, kPerRow = 8, kHidden = 2048, kInner = 1024;
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 128, 512};
constexpr int kRoutings = 3, kRuns = 5;

struct Contender {
  std::string name;
  std::function<void(const GroupedLinearArgs&)> run;
  double us = 0;
};

double time_us(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

class Bench {
 public:
  Bench(DType format, const Hardware& hardware, int64_t n, int64_t k, bool gated)
      : hardware_(hardware),
        pool_(hardware.threads),
        device_(host_device(hardware)),
        layout_(*LinearOp::cpu_layouts()[is_quantized(format) ? 0 : 1]),
        cold_(format, n, k, layout_, *device_, pool_),
        gated_(gated),
        workspace_("workspace", size_t{512} << 20) {
    executor_ = {&pool_, workspace_.take(workspace_.capacity()), nullptr, &hardware_};
    const LinearWeights* one = cold_.next();
    for (int64_t g = 0; g < kGroups; ++g, one = cold_.next()) data_.push_back(one->data);
    weights_ = {format, kGroups, n, k, &layout_, data_, 0};
  }

  void time(int64_t rows) {
    const bool sum = !gated_;
    const GroupedLinearProblem problem{
        weights_.format,   layout_.name(), Precision::Fast, kGroups, weights_.n, weights_.k,
        bucket_rows(rows), kPerRow,        DType::F32,      gated_,  sum};
    std::vector<Contender> contenders{{"apart", [&](const auto& args) { run_apart(args); }}};
    for (const auto* kernel : GroupedLinearOp::cpu()) {
      if (kernel->name() == "reference" || !kernel->can_run(problem, hardware_)) continue;
      MR_ASSERT(kernel->workspace_bytes(problem, hardware_) <= workspace_.capacity());
      contenders.push_back(
          {std::string(kernel->name()), [this, kernel](const auto& args) { kernel->run(args, executor_); }});
    }
    double bytes = 0;
    for (int i = 0; i < kRoutings; ++i) bytes += time_routing(rows, contenders);
    for (const Contender& c : contenders) {
      const double gbs = 1e-3 * bytes / c.us;
      const auto* kernel = find(c.name);
      fmt::print("{:5} {:8} {:22} {:10.0f} us {:7.2f} GB/s {:5.1f} % {:8.0f} us est. {:6.2f}\n",
                 gated_ ? "gated" : "sum", rows, c.name, c.us / kRoutings, gbs, 100 * gbs / hardware_.ceilings.read_gbs,
                 kernel != nullptr ? kernel->estimate_us(problem, hardware_) : 0, contenders[0].us / c.us);
    }
  }

 private:
  static const Kernel<GroupedLinearOp>* find(const std::string& name) {
    for (const auto* kernel : GroupedLinearOp::cpu()) {
      if (kernel->name() == name) return kernel;
    }
    return nullptr;
  }

  // Returns the bytes of the active experts.
  double time_routing(int64_t rows, std::vector<Contender>& contenders) {
    TestRouting routed(rows, kGroups, kPerRow, Spread::Even, random_);
    TestMatrix x(gated_ ? rows : rows * kPerRow, weights_.k, random_);
    TestMatrix y(gated_ ? rows * kPerRow : rows, gated_ ? weights_.n / 2 : weights_.n, random_, 0);
    const GroupedLinearArgs args{
        .x = x.view(), .weights = &weights_, .routing = routed.view(), .gated = gated_, .sum = !gated_, .y = y.view()};
    std::vector<double> least(contenders.size(), std::numeric_limits<double>::infinity());
    for (int run = 0; run < kRuns; ++run) {
      for (size_t i = 0; i < contenders.size(); ++i) {
        std::rotate(data_.begin(), data_.begin() + 7, data_.end());  // other matrices, not in a cache
        least[i] = std::min(least[i], time_us([&] { contenders[i].run(args); }));
      }
    }
    double bytes = 0;
    for (size_t i = 0; i < contenders.size(); ++i) contenders[i].us += least[i];
    for (int64_t g = 0; g < kGroups; ++g) {
      if (args.routing.offsets[g + 1] > args.routing.offsets[g]) bytes += static_cast<double>(cold_.bytes());
    }
    return bytes;
  }

  // One linear layer per active expert, on contiguous rows. Results are not scattered or summed.
  void run_apart(const GroupedLinearArgs& args) {
    for (int64_t g = 0; g < kGroups; ++g) {
      const int64_t rows = args.routing.offsets[g + 1] - args.routing.offsets[g];
      if (rows == 0) continue;
      const LinearProblem problem{
          weights_.format, layout_.name(),    Precision::Fast, weights_.n,
          weights_.k,      bucket_rows(rows), DType::F32,      gated_ && is_quantized(weights_.format)};
      const LinearWeights one{weights_.format, weights_.n, weights_.k, &layout_, data_[static_cast<size_t>(g)]};
      LinearArgs linear;
      linear.x = args.x.first_rows(std::min(rows, args.x.rows));
      linear.weights = &one;
      linear.gated = problem.gated;
      out_.resize(static_cast<size_t>(rows * weights_.n));
      const int64_t n = problem.gated ? weights_.n / 2 : weights_.n;
      linear.y = {DType::F32, linear.x.rows, n, n, reinterpret_cast<std::byte*>(out_.data())};
      planner_.plan(problem)->run(linear, executor_);
    }
  }

  Hardware hardware_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_;
  const LinearLayout& layout_;
  ColdWeights cold_;
  bool gated_;
  Arena workspace_;
  Executor executor_;
  std::vector<const std::byte*> data_;
  GroupedWeights weights_;
  std::vector<float> out_;
  KernelList<LinearOp> kernels_ = LinearOp::cpu();
  Planner<LinearOp> planner_{kernels_, hardware_, nullptr, ""};
  Random random_{1};
};

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  const Hardware hardware = this_machine(argc > 2 ? std::atoi(argv[2]) : 0);
  DType format = DType::Q4_0;
  for (const auto& type : all_dtypes()) {
    if (argc > 1 && type.name == argv[1]) format = type.dtype;
  }
  fmt::print("{} with {} threads, {:.1f} GB/s\n", name(format), hardware.threads, hardware.ceilings.read_gbs);
  for (const bool gated : {true, false}) {
    Bench bench(format, hardware, gated ? 2 * kInner : kHidden, gated ? kHidden : kInner, gated);
    for (const int64_t rows : kRows) bench.time(rows);
  }
}
