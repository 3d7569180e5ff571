// millrace bench: speed of prompt processing and generation, with the percentage of the machine's peak.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "cli/checks.h"
#include "cli/draft_options.h"
#include "cli/flush_stdout.h"
#include "cli/model_options.h"
#include "cli/print_json.h"
#include "cli/token_list.h"
#include "engine/measure/benchmark.h"
#include "engine/measure/draft_turns.h"
#include "hardware/describe.h"

namespace millrace {
namespace {

struct BenchOptions {
  ModelOptions model;
  std::string prompt = "512", generate = "128", batches = "1", depths = "0";
  std::string draft_shape, draft;
  int repetitions = 3;
  int64_t rows = 0;
  bool predict = false, draw = false, ops = false;
};

struct DraftShape {
  int32_t tokens = 0;
  double acceptance = 0;
  int32_t width = 1;
  double second = 0;
};

// "n=4,accept=0.755" or "n=4,accept=0.755,width=2,second=0.4"
DraftShape parse_draft_shape(const std::string& text) {
  DraftShape shape;
  if (text.empty()) return shape;
  int end = 0, branches_end = 0;
  const int read = std::sscanf(text.c_str(), "n=%d,accept=%lf%n,width=%d,second=%lf%n", &shape.tokens,
                               &shape.acceptance, &end, &shape.width, &shape.second, &branches_end);
  const auto is_chance = [](double x) { return x >= 0 && x <= 1; };
  const bool whole = (read == 2 ? end : read == 4 ? branches_end : -1) == static_cast<int>(text.size());
  const bool within = shape.tokens >= 1 && shape.tokens <= 64 && shape.width >= 1 && shape.width <= 1 + kMostBranches;
  if (!whole || !within || !is_chance(shape.acceptance) || !is_chance(shape.second)) {
    fail(ErrorKind::Usage,
         "--draft-shape {}: expected n=1..64,accept=0..1, as n=4,accept=0.755, or with branches "
         "n=4,accept=0.755,width=1..{},second=0..1",
         text, 1 + kMostBranches);
  }
  return shape;
}

std::vector<BenchmarkCase> cases_of(const BenchOptions& o) {
  std::vector<BenchmarkCase> cases;
  constexpr int32_t kMost = 1 << 20;
  const DraftShape drafts = parse_draft_shape(o.draft_shape);
  for (const int32_t depth : parse_int_list("-d", o.depths, 0, kMost)) {
    for (const int32_t batch : parse_int_list("-b", o.batches, 1, 1024)) {
      for (const int32_t tokens : parse_int_list("-p", o.prompt, 0, kMost)) {
        if (tokens > 0) cases.push_back({BenchmarkCase::Kind::Prompt, tokens, batch, depth});
      }
      for (const int32_t tokens : parse_int_list("-n", o.generate, 0, kMost)) {
        if (tokens == 0) continue;
        cases.push_back({BenchmarkCase::Kind::Generate, tokens, batch, depth, o.draw, drafts.tokens, drafts.acceptance,
                         drafts.width, drafts.second});
      }
    }
  }
  if (cases.empty()) fail(ErrorKind::Usage, "nothing to measure: -p and -n are both 0");
  return cases;
}

nlohmann::json to_json(const BenchmarkResult& r, int threads) {
  nlohmann::json ops = nlohmann::json::array();
  for (const auto& entry : r.ops.entries) ops.push_back({{"op", entry.op}, {"calls", entry.calls}, {"us", entry.us}});
  return {{"ops", ops},
          {"test", r.test.name()},
          {"batch", r.test.batch},
          {"depth", r.test.depth},
          {"draft_tokens", r.test.drafts},
          {"draft_acceptance", r.test.acceptance},
          {"draft_width", r.test.width},
          {"draft_second", r.test.second},
          {"threads", threads},
          {"tokens_per_second", r.median},
          {"samples", r.samples},
          {"percent_of_roof", r.percent_of_roof}};
}

void print_row(const BenchmarkResult& r, int threads) {
  double low = r.median, high = r.median;
  for (const double sample : r.samples) low = std::min(low, sample), high = std::max(high, sample);
  fmt::print("{:<8} {:>5} {:>7} {:>7} {:>12.1f} {:>19} {:>9.0f} %\n", r.test.name(), r.test.batch, r.test.depth,
             threads, r.median, r.samples.empty() ? "estimate" : fmt::format("{:.1f} .. {:.1f}", low, high),
             r.percent_of_roof);
  flush_stdout();
}

// Time per token, op by op. Timing each op slows the step down a little.
void print_ops(const BenchmarkResult& r) {
  const double tokens = double(r.test.tokens) * r.test.batch;
  for (const auto& entry : r.ops.entries) {
    fmt::print("  {:<12} {:>9.1f} calls {:>10.1f} us a token {:>5.0f} %\n", entry.op, double(entry.calls) / tokens,
               entry.us / tokens, 100 * entry.us / r.ops.total_us());
  }
}

void print_row(const DraftTurns& r, int threads) {
  fmt::print("{:<8} {:>5} {:>7} {:>7} {:>12.1f} {:>12.1f} {:>8.3f} {:>11.3f} {:>9} {:>9}\n", r.test.name(),
             r.test.batch, r.test.depth, threads, r.median(&DraftTurns::Turn::without),
             r.median(&DraftTurns::Turn::with), r.ratio(), r.cpu_ratio(), r.drafted, r.accepted);
  flush_stdout();
}

nlohmann::json to_json(const DraftTurns& r, int threads) {
  nlohmann::json turns = nlohmann::json::array();
  for (const auto& turn : r.turns)
    turns.push_back({{"without", turn.without}, {"with", turn.with}, {"cpu_ratio", turn.cpu_with / turn.cpu_without}});
  return {{"test", r.test.name()},
          {"batch", r.test.batch},
          {"depth", r.test.depth},
          {"threads", threads},
          {"tokens_per_second_without", r.median(&DraftTurns::Turn::without)},
          {"tokens_per_second", r.median(&DraftTurns::Turn::with)},
          {"ratio", r.ratio()},
          {"cpu_ratio", r.cpu_ratio()},
          {"drafted", r.drafted},
          {"accepted", r.accepted},
          {"turns", turns}};
}

constexpr int64_t kMostPositions = (int64_t{1} << 31) - 1;  // of a KV cache

bool fits(const std::shared_ptr<const WeightSource>& source, const LoadOptions& load) {
  const MemoryPlan plan = Runner(source, load).memory();
  return plan.total() <= plan.available;
}

void print_left_out(const std::vector<BenchmarkCase>& cases, int block_size) {
  for (const auto& c : cases) {
    fmt::print("{:<8} {:>5} {:>7} left out: memory does not hold a KV cache of {} positions\n", c.name(), c.batch,
               c.depth, c.positions(block_size));
  }
  flush_stdout();
}

nlohmann::json left_out(const std::vector<BenchmarkCase>& cases) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& c : cases) list.push_back({{"test", c.name()}, {"batch", c.batch}, {"depth", c.depth}});
  return list;
}

// Opens the source of drafts and reserves what it needs for the largest of these cases.
DraftSource open_drafts_for(const BenchOptions& o, const std::shared_ptr<const WeightSource>& source,
                            const std::vector<BenchmarkCase>& cases, LoadOptions& load) {
  if (o.draft.empty()) return {};
  LoadOptions largest = load;
  size_for(largest, cases);
  DraftSource drafts = open_drafts({o.draft}, o.model, source, largest);
  load.heads = largest.heads;
  load.branches = largest.branches;
  load.logit_rows = largest.logit_rows;
  return drafts;
}

void print_head(const BenchOptions& o, const Runner& runner, bool in_turns) {
  if (o.model.json) return;
  fmt::print("{} on {}, KV {}\n", runner.source().origin(), in_words(runner.hardware()),
             name(*runner.options().kv_type));
  fmt::print("{:<8} {:>5} {:>7} {:>7} ", "test", "batch", "depth", "threads");
  if (in_turns) {
    fmt::print("{:>12} {:>12} {:>8} {:>11} {:>9} {:>9}\n", "without", "with drafts", "ratio", "of CPU time", "drafted",
               "accepted");
  } else {
    fmt::print("{:>12} {:>19} {:>11}\n", "tokens/s", "least .. most", "of roof");
  }
}

void run(const BenchOptions& o) {
  const bool in_turns = !o.draft.empty() && o.draft_shape.empty();
  if (in_turns && o.predict)
    fail(ErrorKind::Usage, "--draft without --draft-shape compares measurements: leave out --predict");
  auto load = load_options(o.model);
  load.measure = true;
  load.past_training = true;
  load.rows = o.rows;
  auto all_cases = cases_of(o);
  const auto source = open_model(o.model);
  const DraftSource drafts = open_drafts_for(o, source, all_cases, load);
  const FittingCases cases = o.predict ? FittingCases{std::move(all_cases), {}}
                                       : cases_that_fit(std::move(all_cases), load, [&](const LoadOptions& sized) {
                                           return sized.kv_tokens <= kMostPositions && fits(source, sized);
                                         });
  size_for(load, cases.fit);
  auto runner = o.predict ? std::make_unique<Runner>(source, load) : load_runner(source, load);
  require_logits(*runner);
  const auto planned = o.predict ? plan_drafter(drafts, *runner) : nullptr;
  const auto drafter = o.predict ? nullptr : make_drafter(drafts, *runner, {});
  const int threads = runner->hardware().threads;
  print_head(o, *runner, in_turns && drafter != nullptr);
  nlohmann::json results = nlohmann::json::array();
  const auto report = [&](const auto& result) {
    if (o.model.json) return results.push_back(to_json(result, threads));
    print_row(result, threads);
  };
  for (const auto& c : cases.fit) {
    if (in_turns && drafter != nullptr && c.kind == BenchmarkCase::Kind::Generate) {
      report(compare_drafts(*runner, *drafter, c, o.repetitions));
      continue;
    }
    const auto result = o.predict ? predict_benchmark(*runner, c, planned.get())
                                  : run_benchmark(*runner, c, o.repetitions, drafter.get());
    report(result);
    if (o.ops && !o.model.json) print_ops(result);
  }
  if (!o.model.json) return print_left_out(cases.too_large, load.block_size);
  const nlohmann::json all{{"hardware", describe(runner->hardware())},
                           {"model", runner->source().origin()},
                           {"draft", o.draft},
                           {"predicted", o.predict},
                           {"left_out", left_out(cases.too_large)},
                           {"results", results}};
  print_json(all);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* verb = app.add_subcommand("bench", "Measure prompt processing (pp) and token generation (tg)");
  auto o = std::make_shared<BenchOptions>();
  add_model_options(*verb, o->model);
  verb->add_option("-p,--prompt", o->prompt, "prompt lengths; 0: none")->capture_default_str();
  verb->add_option("-n,--generate", o->generate, "tokens to generate; 0: none")->capture_default_str();
  verb->add_option("-b,--batch", o->batches, "sequences at once; rates count all of them")->capture_default_str();
  verb->add_option("-d,--depth", o->depths, "tokens already in the cache")->capture_default_str();
  verb->add_option("-r,--repetitions", o->repetitions, "timed runs of each test")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  verb->add_option("--chunk", o->rows,
                   "most tokens in one step; 0: 512 on the CPU, 4096 on a GPU, 8192 on a GPU of at least 64 GB")
      ->check(whole_number(0, 16384));
  verb->add_option("--draft-shape", o->draft_shape,
                   "every step of tg verifies n draft tokens per sequence, each accepted with this probability: "
                   "n=4,accept=0.755; with width=2,second=0.4 also a branch behind a second guess of the first token, "
                   "which is right in so many of the cases where the first guess is not");
  verb->add_option("--draft", o->draft,
                   "with --draft-shape: the time includes the passes of this draft MODEL, EAGLE-3 folder, "
                   "synthetic:eagle3-SHAPE or mtp heads. Alone: tg runs in turns without and with these drafts (also "
                   "lookup, auto), with drawn tokens behind random prompts of -d tokens");
  verb->add_flag("--draw", o->draw,
                 "sample tokens (temperature 0.8, top-k 40, top-p 0.95) instead of taking the likeliest");
  verb->add_flag("--ops", o->ops, "print the measured or estimated time of each op");
  verb->add_flag("--predict", o->predict, "print estimates instead of measuring");
  verb->callback([o] { run(*o); });
}

}  // namespace millrace
