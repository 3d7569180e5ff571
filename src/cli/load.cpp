// millrace load: sends a server the load of many clients, and reports their latencies.
#include <fmt/core.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <random>

#include "base/ascii.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/write_file.h"
#include "cli/checks.h"
#include "cli/load/load_report.h"
#include "cli/print_json.h"
#include "cli/verb.h"

namespace millrace {
namespace {

struct LoadVerbOptions {
  LoadPlan plan;
  std::string key_file, svg;
  std::optional<uint64_t> seed;
  bool json = false, natural = false;
};

std::string read_key(const std::string& file) {
  std::ifstream in(file);
  std::string key;
  if (!std::getline(in, key)) fail(ErrorKind::NotFound, "cannot read an API key from {}", file);
  return std::string(ascii_trim(key));
}

std::string describe(const LoadPlan& plan) {
  const std::string arrivals = plan.rate > 0 ? fmt::format("{:g} requests/s, Poisson", plan.rate)
                                             : fmt::format("{} streams at a time", plan.streams);
  const std::string prefix = plan.prefix_words > 0 ? fmt::format("{} shared + ", plan.prefix_words) : "";
  return fmt::format("{}: {}, {}{} words in, {} tokens out", plan.model, arrivals, prefix, plan.words, plan.tokens);
}

void run(LoadVerbOptions o) {
  LoadPlan& plan = o.plan;
  plan.exact = !o.natural;
  plan.seed = o.seed ? *o.seed : std::random_device()();
  if (!o.key_file.empty()) plan.key = read_key(o.key_file);
  if (plan.model.empty()) plan.model = first_model(plan);
  if (!o.json) fmt::print("{}, seed {}\n", describe(plan), plan.seed);
  std::vector<LoadedRequest> requests;
  const double started = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  {
    // Progress in time, or in requests if their number ends the run.
    const int64_t total = plan.requests > 0 ? plan.requests : static_cast<int64_t>(plan.duration * 10);
    Progress bar("load", total);
    requests = run_load(plan, [&](const LoadProgress& p) {
      const int64_t done = plan.requests > 0 ? p.finished + p.failed : static_cast<int64_t>(p.elapsed * 10);
      bar.set(std::min(done, total));
    });
  }
  const LoadReport report = summarise(requests);
  if (o.json) {
    nlohmann::json json = to_json(report);
    json["started"] = started;  // wall clock at the start, to align concurrent runs
    json["each"] = to_json(requests);
    json["plan"] = {{"model", plan.model},       {"rate", plan.rate},   {"streams", plan.rate > 0 ? 0 : plan.streams},
                    {"duration", plan.duration}, {"words", plan.words}, {"prefix_words", plan.prefix_words},
                    {"tokens", plan.tokens},     {"seed", plan.seed}};
    print_json(json);
  } else {
    print_report(report);
  }
  if (!o.svg.empty()) write_file(o.svg, plot_svg(report, describe(plan)));  // last: a bad path loses no figures
  if (report.whole == 0)
    fail(ErrorKind::Network, "no request got a whole answer{}{}", report.problem.empty() ? "" : ": ", report.problem);
}

}  // namespace

void add_load(CLI::App& app) {
  auto* verb = app.add_subcommand("load", "Put a server under load: TTFT, TPOT, ITL and throughput");
  auto o = std::make_shared<LoadVerbOptions>();
  LoadPlan& plan = o->plan;
  verb->add_option("--url", plan.url, "the server, such as http://127.0.0.1:8080")->required();
  verb->add_option("-m,--model", plan.model, "default: the first that the server lists");
  auto* rate = verb->add_option("--rate", plan.rate, "requests per second, arriving at random (Poisson)")
                   ->check(in_range(0.001, 1e5));
  verb->add_option("-c,--concurrency", plan.streams, "concurrent requests, instead of a rate")
      ->check(whole_number(1, 10000))
      ->capture_default_str()
      ->excludes(rate);
  verb->add_option("--duration", plan.duration, "seconds in which requests start")
      ->check(in_range(0.1, 1e6))
      ->capture_default_str();
  verb->add_option("--requests", plan.requests, "maximum number of requests")->check(whole_number(1, 60000));
  verb->add_option("--words", plan.words, "words of each prompt")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  verb->add_option("--prefix-words", plan.prefix_words, "words that all prompts begin with")
      ->check(whole_number(0, 1000000));
  verb->add_option("-n,--tokens", plan.tokens, "tokens of each answer")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  verb->add_flag("--natural", o->natural, "let answers end by themselves, for servers without ignore_eos");
  verb->add_option("--timeout", plan.patience, "seconds for one answer")
      ->check(in_range(0.1, 1e6))
      ->capture_default_str();
  verb->add_option("--api-key-file", o->key_file, "file whose first line is the API key");
  verb->add_option("--seed", o->seed, "seed of prompts and arrivals; default: random, and printed")->check(is_seed);
  verb->add_option("--svg", o->svg, "write a plot to this file");
  verb->add_flag("--json", o->json, "one JSON object on stdout");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
