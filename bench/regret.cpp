// How much time the choice of kernels loses: regret [--device cuda] [--formats q4_1,q8_0] [--shapes 333x96] [--rounds
// 30]
//
// Times every kernel that can run a problem, cold and interleaved: an exhaustive search. Regret is the time of the
// chosen kernel over that of the best. Untuned, the estimates alone choose; tuned, a quick measurement of the best few
// chooses. Prints a Markdown table. The default shapes are none that the estimates were fitted on.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/error.h"
#include "dataflow/tuner.h"
#include "hardware/this_machine.h"
#include "kernels/kernel_set.h"
#include "linear_cases.h"

namespace millrace {
namespace {

constexpr LinearShape kHeldOutShapes[] = {{1152, 896}, {4864, 896}, {896, 4864}, {2560, 2560}, {1024, 3072}};
constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 6, 8, 12, 13, 16, 32, 48, 64, 128, 256};
constexpr LinearShape kHeldOutGpuShapes[] = {{4608, 3584}, {3584, 3584}, {18944, 3584}, {3584, 18944}, {7168, 5120}};
constexpr int64_t kGpuRows[] = {1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024};

struct Options {
  std::string device = "cpu", formats;
  std::vector<std::string> shapes;
  int threads = 0, rounds = 15;
  int64_t most_rows = 256;
};

struct Regrets {
  std::vector<double> untuned, tuned;

  void add(const Regrets& other) {
    untuned.insert(untuned.end(), other.untuned.begin(), other.untuned.end());
    tuned.insert(tuned.end(), other.tuned.begin(), other.tuned.end());
  }
};

LinearShape parse_shape(const std::string& text) {
  LinearShape shape{};
  char rest = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 "x%" SCNd64 "%c", &shape.n, &shape.k, &rest) != 2 || shape.n < 1 ||
      shape.k < 1)
    fail(ErrorKind::Usage, "--shapes {}: expected NxK", text);
  return shape;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * double(values.size() - 1))];
}

double us_of(const std::vector<Measurement>& all, std::string_view kernel) {
  return std::find_if(all.begin(), all.end(), [&](const auto& m) { return m.kernel == kernel; })->us;
}

class Search {
 public:
  explicit Search(const Options& options)
      : options_(options),
        device_(open_device({.choice = parse_device(options.device).value_or(DeviceChoice::Cpu),
                             .threads = options.threads,
                             .measure = true})),
        hardware_(device_->hardware()),
        kernels_(device_->is_host() ? cpu_kernels() : cuda_kernels()),
        pool_(device_->is_host() ? hardware_.threads : 4),
        planner_(kernels_.of<LinearOp>(), hardware_, nullptr, "") {}

  std::vector<LinearShape> shapes() const {
    std::vector<LinearShape> all;
    for (const auto& text : options_.shapes) all.push_back(parse_shape(text));
    if (!all.empty()) return all;
    const auto held_out =
        device_->is_host() ? std::span(kHeldOutShapes) : std::span<const LinearShape>(kHeldOutGpuShapes);
    return {held_out.begin(), held_out.end()};
  }

  Regrets search(DType format, LinearShape shape) {
    Regrets regrets;
    const DType x = device_->is_host() ? DType::F32 : is_quantized(format) ? DType::BF16 : format;
    for (const auto* layout : kernels_.layouts) {
      if (!layout->accepts(format, shape.n, shape.k, hardware_) || !is_usual(*layout, format)) continue;
      ColdWeights weights(format, shape.n, shape.k, *layout, *device_, pool_);
      for (const int64_t m :
           device_->is_host() ? std::span<const int64_t>(kRows) : std::span<const int64_t>(kGpuRows)) {
        if (m > options_.most_rows) break;
        const LinearProblem problem{format, layout->name(), Precision::Fast, shape.n, shape.k, m, x};
        add_problem(problem, weights, regrets);
      }
    }
    return regrets;
  }
  const Hardware& hardware() const { return hardware_; }

 private:
  // Whether models of this format use the layout.
  bool is_usual(const LinearLayout& layout, DType format) const {
    return device_->is_host() ? is_quantized(format) == (layout.name() == "rows8") : layout.name() != "cuda_rows";
  }

  void add_problem(const LinearProblem& problem, ColdWeights& weights, Regrets& regrets) {
    std::vector<const LinearKernel*> all;
    const auto ranked = planner_.rank(problem);
    for (const auto& candidate : ranked) {
      if (candidate.kernel->name() != "reference" && candidate.estimate_us < 20 * ranked.front().estimate_us)
        all.push_back(candidate.kernel);
    }
    const auto quick = KernelTimer(*device_, pool_).time(problem, worth_measuring(planner_, problem), weights);
    const TimingEffort thorough{options_.rounds, 0.05, 3.0, 5.0};
    const auto exact = KernelTimer(*device_, pool_, thorough).time(problem, all, weights);
    const double best = exact.front().us;
    regrets.untuned.push_back(100 * (us_of(exact, ranked.front().kernel->name()) / best - 1));
    regrets.tuned.push_back(100 * (us_of(exact, quick.front().kernel) / best - 1));
    fmt::print(stderr,
               "{:<50} untuned {:<14} {:>6.1f} %  tuned {:<14} {:>6.1f} %  best {:<14} {:.1f} us, estimated {:.1f}\n",
               to_string(problem), ranked.front().kernel->name(), regrets.untuned.back(), quick.front().kernel,
               regrets.tuned.back(), exact.front().kernel, best, ranked.front().estimate_us);
  }

  const Options& options_;
  const std::unique_ptr<Device> device_;
  const Hardware& hardware_;
  const KernelSet& kernels_;
  ThreadPool pool_;
  Planner<LinearOp> planner_;
};

void print_row(std::string_view name, const Regrets& r) {
  fmt::print("| {} | {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % |\n", name, r.tuned.size(),
             quantile(r.untuned, 0.5), quantile(r.untuned, 0.9), quantile(r.tuned, 0.5), quantile(r.tuned, 0.9));
}

void run(const Options& options) {
  Search search(options);
  fmt::print("{}", search.hardware().name);
  if (options.device == "cpu") fmt::print(", {} threads", search.hardware().threads);
  fmt::print(
      "\n\n| format | problems | untuned, median | 90 % | tuned, median | 90 % "
      "|\n|---|---|---|---|---|---|\n");
  Regrets all;
  for (size_t begin = 0; begin < options.formats.size();) {
    const size_t end = std::min(options.formats.find(',', begin), options.formats.size());
    const std::string text = options.formats.substr(begin, end - begin);
    begin = end + 1;
    const auto format = dtype_from_name(text);
    if (!format) fail(ErrorKind::Usage, "--formats {}: no such format", text);
    Regrets one;
    for (const auto& shape : search.shapes()) {
      if (shape.k % info(*format).block == 0) one.add(search.search(*format, shape));
    }
    if (one.tuned.empty()) continue;
    print_row(name(*format), one);
    all.add(one);
  }
  print_row("all", all);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  Options options;
  CLI::App app("What the choice of kernels loses against an exhaustive search");
  app.add_option("--device", options.device, "cpu, cuda or cuda:N")
      ->check([](const std::string& name) { return parse_device(name) ? "" : name + " is none of cpu, cuda, cuda:N"; })
      ->capture_default_str();
  app.add_option("--formats", options.formats, "formats of the weights; default: the usual ones");
  app.add_option("--shapes", options.shapes, "NxK with commas; default: some that no estimate was fitted on")
      ->delimiter(',');
  app.add_option("-t,--threads", options.threads, "0: one per core")->capture_default_str();
  app.add_option("--rounds", options.rounds, "least rounds of the exhaustive search")->capture_default_str();
  app.add_option("--rows", options.most_rows, "most rows of x")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.formats.empty())
    options.formats =
        options.device.starts_with("cuda") ? "BF16,Q8_0,Q4_0,Q4_K" : "Q8_0,Q4_0,Q4_1,Q5_0,Q4_K,Q6_K,IQ4_NL,F16,BF16";
  try {
    run(options);
  } catch (const Error& error) {
    fmt::print(stderr, "regret: {}\n", error.what());
    return 1;
  }
}
