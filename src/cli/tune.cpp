// millrace tune: measures the candidate kernels of a model's steps, and keeps the times for later runs.
#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/checks.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "engine/measure/tuning.h"
#include "hardware/describe.h"
#include "hardware/load.h"

namespace millrace {
namespace {

struct TuneOptions {
  ModelOptions model;
  int64_t sequences = 8, rows = 0;
};

nlohmann::json steps_json(const TuningReport& report) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [kind, turns] : report.steps)
    all[std::string(name(kind))] = {{"ratio", median_ratio(turns)}, {"kept", report.keeps(kind)}};
  return all;
}

void run(const TuneOptions& o) {
  auto load = load_options(o.model);
  load.measure = true;
  load.sequences = o.sequences;
  load.rows = o.rows;
  const std::shared_ptr<const WeightSource> source = open_model(o.model);
  Runner runner(source, load);  // planned, not loaded: kernels are timed with random weights
  std::unique_ptr<Progress> bar;
  const auto start = std::chrono::steady_clock::now();
  int64_t bar_total = 0;
  const auto report = tune(runner, source, [&](int64_t done, int64_t total) {
    if (total != bar_total) {  // kernels come first, then whole steps
      bar = std::make_unique<Progress>(bar_total == 0 ? "tuning" : "checking", total);
      bar_total = total;
    }
    bar->set(done);
    throw_if_interrupted();
  });
  bar.reset();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (o.model.json) {
    print_json({{"model", runner.source().origin()},
                {"threads", runner.hardware().threads},
                {"problems", report.problems},
                {"changed", report.changed},
                {"faster", report.faster},
                {"estimate_error", report.error},
                {"seconds", seconds},
                {"busy", report.busy()},
                {"steps", steps_json(report)},
                {"file", report.file.string()}});
    return;
  }
  if (report.busy()) {
    fmt::print("{}; nothing was kept: tune again when it is idle\n", busy_text(report.others));
    return;
  }
  fmt::print("{} problems measured on {} in {:.0f} s; estimates were off by {:.0f} % (median)\n", report.problems,
             in_words(runner.hardware()), seconds, 100 * report.error);
  fmt::print("{} choices changed", report.changed);
  if (report.changed > 0) fmt::print(", those problems now run {:.2f}x as fast", report.faster);
  fmt::print("\n");
  for (const auto& [kind, turns] : report.steps) {
    fmt::print("{}: {:.2f}x of the time before, {}\n", name(kind), median_ratio(turns),
               report.keeps(kind) ? "kept" : "dropped");
  }
  fmt::print("plans are in {}; 'millrace explain' shows them\n", report.file.string());
}

}  // namespace

void add_tune(CLI::App& app) {
  auto* verb = app.add_subcommand("tune", "Measure the kernels for a model on this machine, and keep the best");
  auto o = std::make_shared<TuneOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("-b,--batch", o->sequences, "most sequences at once to tune for")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  verb->add_option("--chunk", o->rows,
                   "most tokens in one step; 0: 512 on the CPU, 4096 on a GPU, 8192 on a GPU of at least 64 GB")
      ->check(whole_number(0, 16384));
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
