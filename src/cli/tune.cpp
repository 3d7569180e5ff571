// millrace tune: measures the candidate kernels of a model's steps, and keeps the times for later runs.
#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "engine/measure/tuning.h"
#include "hardware/describe.h"

namespace millrace {
namespace {

constexpr double kSuspicious = 0.5;  // relative error of the estimates

struct TuneOptions {
  ModelOptions model;
  int64_t sequences = 8, rows = 0;
};

void run(const TuneOptions& o) {
  auto load = load_options(o.model);
  load.measure = true;
  load.sequences = o.sequences;
  load.rows = o.rows;
  Runner runner(open_model(o.model), load);  // planned, not loaded: kernels are timed with random weights
  std::unique_ptr<Progress> bar;
  const auto start = std::chrono::steady_clock::now();
  const auto report = tune(runner, [&](int64_t done, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("tuning", total);
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
                {"file", report.file.string()}});
    return;
  }
  fmt::print("{} problems measured on {} in {:.0f} s; estimates were off by {:.0f} % (median)\n", report.problems,
             in_words(runner.hardware()), seconds, 100 * report.error);
  if (report.error > kSuspicious)
    fmt::print("that is far: if other programs were busy, tune again when they are not\n");
  fmt::print("{} choices changed", report.changed);
  if (report.changed > 0) fmt::print(", those problems now run {:.2f}x as fast", report.faster);
  fmt::print("\nkept in {}; 'millrace explain' shows them\n", report.file.string());
}

}  // namespace

void add_tune(CLI::App& app) {
  auto* verb = app.add_subcommand("tune", "Measure the kernels for a model on this machine, and keep the best");
  auto o = std::make_shared<TuneOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("-b,--batch", o->sequences, "most sequences at once to tune for")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb->add_option("--chunk", o->rows,
                   "most tokens in one step; 0: 512 on the CPU, 4096 on a GPU, 8192 on a GPU of at least 64 GB")
      ->check(CLI::Range(0, 16384));
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
