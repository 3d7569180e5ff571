#include "engine/measure/tuning.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/write_file.h"
#include "dataflow/buckets.h"
#include "dataflow/tuner.h"
#include "hardware/load.h"

namespace millrace {
namespace {

// Longer contexts than the first are extrapolated by the estimates. Kernels whose ranking needs a measurement are timed
// up to the second.
constexpr int64_t kLongestContext = 4096, kLongestMeasured = 16384;

// Adds the planned buckets of a matrix unless an equal matrix has at least as many.
template <class Problem>
void add_distinct(std::vector<Problem> problems, std::vector<std::vector<Problem>>& all) {
  const auto is_same = [&](const auto& other) { return other.front() == problems.front(); };
  const auto known = std::find_if(all.begin(), all.end(), is_same);
  if (known == all.end()) {
    all.push_back(std::move(problems));
  } else if (known->size() < problems.size()) {
    *known = std::move(problems);
  }
}

std::vector<std::vector<LinearProblem>> linear_problems(Runner& runner) {
  std::vector<std::vector<LinearProblem>> all;
  for (const Linear* linear : runner.ops().linears()) {
    for (const auto& part : linear->parts) {
      std::vector<LinearProblem> problems;
      for (const auto& [m, kernel] : part.plan)
        problems.push_back(runner.ops().problem_of(part.weights, m, linear->gated));
      add_distinct(std::move(problems), all);
    }
  }
  return all;
}

std::vector<std::vector<GroupedLinearProblem>> grouped_problems(Runner& runner) {
  std::vector<std::vector<GroupedLinearProblem>> all;
  for (const Grouped* grouped : runner.ops().groupeds()) {
    std::vector<GroupedLinearProblem> problems;
    for (const auto& [rows, kernel] : grouped->plan) problems.push_back(runner.ops().problem_of(*grouped, rows));
    add_distinct(std::move(problems), all);
  }
  return all;
}

bool is_left_to_measurement(Runner& runner, const AttentionProblem& problem) {
  const Hardware& hardware = runner.hardware();
  const auto& kernels = runner.ops().kernels().of<AttentionOp>();
  return std::any_of(kernels.begin(), kernels.end(), [&](const AttentionKernel* kernel) {
    return kernel->variant_of(problem, hardware) != nullptr && kernel->can_run(problem, hardware);
  });
}

// Batches of decodes only and of whole prompts; mixed batches use estimates.
std::vector<AttentionProblem> attention_problems(Runner& runner) {
  std::vector<AttentionProblem> all;
  for (AttentionProblem largest : runner.ops().attentions()) {
    largest.sequences = runner.options().sequences;
    largest.rows = runner.options().rows;
    largest.context = std::min(runner.options().context, kLongestMeasured);
    for (const auto& problem : attention_buckets(largest)) {
      const bool decode = problem.rows == problem.sequences;
      const bool prompt = problem.sequences == 1 && problem.rows >= 64;
      if (!decode && !prompt) continue;
      if (problem.context > kLongestContext && !is_left_to_measurement(runner, problem)) continue;
      if (std::find(all.begin(), all.end(), problem) == all.end()) all.push_back(problem);
    }
  }
  return all;
}

int64_t rows_of(const LinearProblem& problem) { return problem.m; }
template <class Problem>
int64_t rows_of(const Problem& problem) {
  return problem.rows;
}

struct Tuned {  // the measurements of one problem
  StepKind kind;
  std::string_view op;
  std::string problem;
  std::vector<Measurement> times;
};

class Tally {
 public:
  template <class Op>
  void add(const std::vector<Candidate<Op>>& before, const std::vector<Candidate<Op>>& after) {
    ++problems_;
    const auto& chosen = after.front();
    errors_.push_back(std::abs(chosen.estimate_us / chosen.measured_us - 1));
    for (const auto& candidate : after) {
      if (candidate.kernel != before.front().kernel || candidate.kernel == chosen.kernel) continue;
      ++changed_;
      log_gains_ += std::log(candidate.measured_us / chosen.measured_us);
    }
  }
  TuningReport report() {
    TuningReport report{.problems = problems_, .changed = changed_};
    if (changed_ > 0) report.faster = std::exp(log_gains_ / double(changed_));
    if (!errors_.empty()) {
      const auto middle = errors_.begin() + static_cast<std::ptrdiff_t>(errors_.size() / 2);
      std::nth_element(errors_.begin(), middle, errors_.end());
      report.error = *middle;
    }
    return report;
  }

 private:
  int64_t problems_ = 0, changed_ = 0;
  double log_gains_ = 0;
  std::vector<double> errors_;
};

}  // namespace

bool TuningReport::busy() const { return others > kBusyShare; }

bool TuningReport::keeps(StepKind kind) const {
  const auto found = steps.find(kind);
  return !busy() && found != steps.end() && survives(found->second);
}

TuningReport tune(Runner& runner, const std::shared_ptr<const WeightSource>& source,
                  const std::function<void(int64_t, int64_t)>& progress) {
  runner.ops().device().use_on_this_thread();
  const Hardware& hardware = runner.hardware();
  const int64_t sequences = runner.options().sequences;
  const auto file = PlanCache::file_for(hardware.id, hardware.threads);
  require_writable(file);
  const LoadMeter load = LoadMeter::with_look_ahead();
  if (load.busy()) return {.others = load.others(), .file = file};

  const auto kept = std::make_shared<PlanCache>(PlanCache::load(file));
  const auto candidate = std::make_shared<PlanCache>(*kept);
  std::vector<Tuned> measured;
  const KernelSet& kernels = runner.ops().kernels();
  Tuner tuner(kernels, runner.ops().device(), runner.ops().pool(), *candidate, runner.rank().weight_bytes());
  Tally tally;
  const auto note = [&]<class Op>(const typename Op::Problem& problem) {
    const Planner<Op> before(kernels.of<Op>(), hardware, nullptr, ""),
        after(kernels.of<Op>(), hardware, candidate.get(), "");
    tally.add(before.rank(problem), after.rank(problem));
    measured.push_back({kind_of_step(rows_of(problem), sequences), Op::kName, to_string(problem),
                        *candidate->find(Op::kName, to_string(problem))});
  };

  const auto linears = linear_problems(runner);
  const auto groupeds = grouped_problems(runner);
  const auto attentions = attention_problems(runner);
  int64_t done = 0;
  const auto total = static_cast<int64_t>(linears.size() + groupeds.size() + attentions.size());
  for (const auto& matrix : linears) {
    progress(done++, total);
    tuner.tune(matrix);
    for (const auto& problem : matrix) note.template operator()<LinearOp>(problem);
  }
  for (const auto& matrices : groupeds) {
    progress(done++, total);
    tuner.tune(matrices);
    for (const auto& problem : matrices) note.template operator()<GroupedLinearOp>(problem);
  }
  for (const auto& problem : attentions) {
    progress(done++, total);
    tuner.tune(problem);
    note.template operator()<AttentionOp>(problem);
  }
  progress(total, total);

  TuningReport report = tally.report();
  report.file = file;
  report.steps = time_in_turns(source, runner.options(), std::make_shared<PlanCache>(*kept), candidate, progress);
  report.others = load.others();
  if (report.busy()) return report;
  for (Tuned& tuned : measured) {
    if (report.keeps(tuned.kind)) kept->put(tuned.op, tuned.problem, std::move(tuned.times));
  }
  kept->save(file);
  return report;
}

}  // namespace millrace
