// millrace explain: the kernel chosen for each problem of a model, its alternatives, and its distance from the roof.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/checks.h"
#include "cli/draft_options.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/token_list.h"
#include "engine/measure/explain.h"
#include "engine/measure/speculation.h"
#include "engine/step_cost.h"
#include "hardware/describe.h"

namespace millrace {
namespace {

constexpr std::array<int32_t, 8> kDraftLengths{1, 2, 3, 4, 6, 8, 11, 15};
constexpr size_t kPassLengths = 6;  // of those: lengths of drafts by models and heads

struct ExplainOptions {
  ModelOptions model;
  std::string batches = "1,8";
  int64_t depth = 1024;
  bool all = false, speculate = false;
  std::string draft;
};

// `measured`: the roof is; a percent of a guessed one says nothing.
nlohmann::json to_json(const OpCall& c, bool measured) {
  nlohmann::json candidates = nlohmann::json::array();
  for (const auto& candidate : c.candidates) {
    candidates.push_back(
        {{"kernel", candidate.kernel},
         {"estimate_us", candidate.estimate_us},
         {"measured_us", candidate.measured_us > 0 ? nlohmann::json(candidate.measured_us) : nlohmann::json()},
         {"percent_of_roof", measured ? nlohmann::json(candidate.percent_of_roof) : nlohmann::json()}});
  }
  return {{"problem",
           {{"op", c.op},
            {"n", c.n},
            {"k", c.k},
            {"m", c.m},
            {"what", c.problem},
            {"format", c.format},
            {"layout", c.layout},
            {"calls", c.calls},
            {"on_host", c.on_host}}},
          {"chosen", c.candidates.front().kernel},
          {"candidates", candidates}};
}

// Where the time of a step goes if the CPU computes a part of it.
void print_expected(Runner& runner, const std::string& what, const StepShape& shape) {
  const StepCost cost = step_cost(runner, shape.rows, shape.sequences, shape.context, shape.wanted);
  std::string parts;
  for (const auto& entry : cost.expected.entries) {
    if (entry.us < 0.01 * cost.expected_us()) continue;
    parts += fmt::format("{}{} {:.2f} ms", parts.empty() ? "" : ", ", entry.op, entry.us * 1e-3);
  }
  fmt::print("{}: {:.1f} tokens/s expected; a step: {}\n", what, double(shape.rows) * 1e6 / cost.expected_us(), parts);
}

void print(const OpCall& c, bool roof_measured) {
  fmt::print("\n{}, m={}, {} calls a step{}\n", c.problem, c.m, c.calls, c.on_host ? ", on the CPU" : "");
  for (size_t i = 0; i < c.candidates.size(); ++i) {
    const auto& candidate = c.candidates[i];
    const std::string measured =
        candidate.measured_us > 0 ? fmt::format("{:10.1f}", candidate.measured_us) : "         -";
    const std::string percent = roof_measured ? fmt::format("{:>6.0f} %", candidate.percent_of_roof) : "     -  ";
    fmt::print("  {} {:<34} {:>10.1f} {} {}\n", i == 0 ? "*" : " ", candidate.kernel, candidate.estimate_us, measured,
               percent);
  }
}

std::string chance(double chance) { return chance <= 1 ? fmt::format("{:.2f}", std::max(0.0, chance)) : "never"; }

// For each batch and draft length: the expected time of a step, and the acceptance per token from which it pays. With
// heads also the time with a branch beside each draft, and the chance of its first token from which that pays.
void print_speculation(Runner& runner, Runner* passes, bool branches, const std::vector<int32_t>& batches,
                       int64_t context, bool json) {
  std::span<const int32_t> lengths = kDraftLengths;
  if (passes != nullptr) lengths = lengths.first(kPassLengths);
  const auto costs = speculation_costs(runner, batches, lengths, context, passes);
  double alone = 0;
  nlohmann::json all = nlohmann::json::array();
  if (!json) {
    fmt::print("{:>5} {:>6} {:>12} {:>8} {:>11}{}\n", "batch", "draft", "step us", "times", "break-even",
               branches ? "   a branch us  second guess" : "");
  }
  for (const auto& c : costs) {
    if (c.draft == 0) alone = c.us;
    if (json) {
      all.push_back({{"batch", c.batch}, {"draft", c.draft}, {"step_us", c.us}, {"break_even", c.break_even}});
      if (branches && c.draft > 0)
        all.back().update({{"branch_us", c.branch_us}, {"branch_break_even", c.branch_break_even}});
      continue;
    }
    fmt::print("{:>5} {:>6} {:>12.1f} {:>8.2f} {:>11}", c.batch, c.draft, c.us, c.us / alone,
               c.draft == 0 ? "-" : chance(c.break_even));
    if (branches && c.draft > 0) fmt::print(" {:>13.1f} {:>13}", c.branch_us, chance(c.branch_break_even));
    fmt::print("\n");
  }
  if (json) print_json({{"context", context}, {"speculation", all}});
}

void run(const ExplainOptions& o) {
  if (!o.draft.empty() && !o.speculate) fail(ErrorKind::Usage, "--draft: only with --speculate");
  const auto batches = parse_int_list("-b", o.batches, 1, 1024);
  auto load = load_options(o.model);
  load.measure = true;
  load.sequences = *std::max_element(batches.begin(), batches.end());
  if (o.speculate) load.logit_rows = load.sequences * (1 + kDraftLengths.back());
  if (o.speculate) load.rows = std::max<int64_t>(512, load.logit_rows);
  const auto source = open_model(o.model);
  DraftSource drafts;
  if (!o.draft.empty()) drafts = open_drafts({o.draft}, o.model, source, load);
  Runner runner(source, load);  // planned, not loaded: planning needs no weights
  const int64_t context = std::min(o.depth, runner.options().context);
  if (o.speculate) {
    const bool branches = drafts.kind == DraftSource::Kind::Heads;
    return print_speculation(runner, plan_drafter(drafts, runner).get(), branches, batches, context, o.model.json);
  }
  auto choices = explain(runner, batches, context);
  if (!o.all) std::erase_if(choices, [](const OpCall& c) { return !c.has_roof; });
  if (o.model.json) {
    nlohmann::json all{{"choices", nlohmann::json::array()}, {"crossovers", nlohmann::json::array()}};
    for (const auto& c : choices) all["choices"].push_back(to_json(c, runner.hardware().ceilings.measured));
    for (const auto& c : crossovers(runner))
      all["crossovers"].push_back({{"n", c.n}, {"k", c.k}, {"format", c.format}, {"m1", c.m1}, {"m2", c.m2}});
    print_json(all);
    return;
  }
  const auto& hardware = runner.hardware();
  fmt::print("{} on {}; ceilings {}: {:.0f} GB/s, {:.0f} int8 GOP/s, {:.0f} f32 GFLOP/s\n", runner.source().origin(),
             in_words(hardware), hardware.ceilings.measured ? "measured" : "guessed", hardware.ceilings.read_gbs,
             hardware.ceilings.int8_gops, hardware.ceilings.f32_gflops);
  if (runner.rank().uses_host()) {
    fmt::print("{}\n", runner.rank().host_share().to_string());
    for (const int32_t batch : batches)
      print_expected(runner, fmt::format("batch {}", batch), {batch, batch, context, batch});
    const int64_t prompt = std::min(runner.options().rows, context);
    print_expected(runner, fmt::format("prompt of {}", prompt), {prompt, 1, prompt, 1});
  }
  if (runner.rank().mapped_experts().any()) fmt::print("{}\n", runner.rank().mapped_experts().to_string());
  fmt::print("  {:<36} {:>10} {:>10} {:>8}\n", "* chosen", "estimate us", "measured", "of roof");
  for (const auto& c : choices) print(c, hardware.ceilings.measured);
  fmt::print("\nrows from which the kernel for one row (M1) and the last one (M2) are chosen:\n");
  for (const auto& c : crossovers(runner)) {
    const auto text = [](int64_t m) { return m == 0 ? std::string("never") : std::to_string(m); };
    fmt::print("  [{}, {}] {}: M1 {}, M2 {}\n", c.n, c.k, c.format, text(c.m1), text(c.m2));
  }
}

}  // namespace

void add_explain(CLI::App& app) {
  auto* verb =
      app.add_subcommand("explain", "Show every kernel choice with its estimate, its measurement and the runner-up");
  auto o = std::make_shared<ExplainOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("-b,--batch", o->batches, "batch sizes of decode to explain")->capture_default_str();
  verb->add_option("-d,--depth", o->depth, "context to explain attention at")
      ->check(whole_number(1, 1 << 24))
      ->capture_default_str();
  verb->add_flag("--all", o->all, "also the small ops between linear layers and attention");
  verb->add_flag("--speculate", o->speculate,
                 "the planned cost of steps with drafts instead, and the acceptance per token from which they pay");
  verb->add_option("--draft", o->draft,
                   "with --speculate: includes the passes of this draft MODEL, EAGLE-3 folder or mtp heads");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
