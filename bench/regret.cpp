// regret [--experts [--skew 1]] [--device cuda] [--formats q4_1,q8_0] [--shapes 333x96] [--rounds 30]
//
// Times every kernel that can run a problem, cold and interleaved, and prints a Markdown table of the loss by the
// choice; stderr has every problem. The default shapes are none that the estimates were fitted on.
#include "regret.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"

namespace millrace {
namespace {

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * double(values.size() - 1))];
}

double us_of(const std::vector<Measurement>& all, std::string_view kernel) {
  return std::find_if(all.begin(), all.end(), [&](const auto& m) { return m.kernel == kernel; })->us;
}

void print_row(std::string_view name, const Regrets& r) {
  fmt::print("| {} | {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % |\n", name, r.tuned.size(),
             quantile(r.untuned, 0.5), quantile(r.untuned, 0.9), quantile(r.tuned, 0.5), quantile(r.tuned, 0.9));
}

void run(const RegretOptions& options) {
  RegretSearch search(options);
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
    const Regrets one = search.search(*format);
    if (one.tuned.empty()) continue;
    print_row(name(*format), one);
    all.add(one);
  }
  if (!all.tuned.empty()) print_row("all", all);
}

}  // namespace

void RegretSearch::add(const std::string& problem, std::string_view untuned, double estimate_us, std::string_view tuned,
                       const std::vector<Measurement>& exact, Regrets& regrets) const {
  const double best = exact.front().us;
  regrets.untuned.push_back(100 * (us_of(exact, untuned) / best - 1));
  regrets.tuned.push_back(100 * (us_of(exact, tuned) / best - 1));
  fmt::print(
      stderr, "{:<50} untuned {:<14} {:>6.1f} %  tuned {:<14} {:>6.1f} %  best {:<14} {:.1f} us, estimated {:.1f}\n",
      problem, untuned, regrets.untuned.back(), tuned, regrets.tuned.back(), exact.front().kernel, best, estimate_us);
}

}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  RegretOptions options;
  CLI::App app("What the choice of kernels loses against an exhaustive search");
  app.add_option("--device", options.device, "cpu, cuda or cuda:N")
      ->check([](const std::string& name) { return parse_device(name) ? "" : name + " is none of cpu, cuda, cuda:N"; })
      ->capture_default_str();
  app.add_option("--formats", options.formats, "formats of the weights; default: the usual ones");
  auto* shapes = app.add_option("--shapes", options.shapes,
                                "NxK with commas, of linear layers; default: some that no estimate was fitted on");
  shapes->delimiter(',');
  auto* experts = app.add_flag("--experts", options.experts, "mixtures of experts instead of linear layers");
  experts->excludes(shapes);
  app.add_option("--skew", options.skew, "chances of the g-th expert are proportional to g^-skew")
      ->check(CLI::Range(0.0, 4.0))
      ->needs(experts)
      ->capture_default_str();
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
