#include "engine/explain.h"

#include <fmt/core.h>

#include <algorithm>

#include "dataflow/roofline.h"

namespace millrace {
namespace {

template <class Op>
std::vector<ExplainedCandidate> describe(const std::vector<Candidate<Op>>& ranked, double roof) {
  std::vector<ExplainedCandidate> all;
  for (const auto& c : ranked) {
    const double us = c.measured_us > 0 ? c.measured_us : c.estimate_us;
    all.push_back({std::string(c.kernel->name()), c.estimate_us, c.measured_us, 100 * roof / us});
  }
  return all;
}

// Layers repeat: one line for all linear layers that pose the same problem.
void add_linear(std::vector<ExplainedChoice>& choices, Runner& runner, const LinearWeights& w, int64_t m, bool gated) {
  const LinearProblem problem = runner.ops().problem_of(w, m, gated);
  for (auto& known : choices) {
    if (known.op == LinearOp::kName && known.n == w.n && known.k == w.k && known.m == m &&
        known.format == name(w.format) && known.layout == w.layout->name()) {
      ++known.calls;
      return;
    }
  }
  ExplainedChoice choice{
      std::string(LinearOp::kName), "", std::string(name(w.format)), std::string(w.layout->name()), w.n, w.k, m, 1, {}};
  choice.candidates =
      describe(runner.ops().linear_planner().rank(problem.bucketed()), roof_us(problem, runner.hardware()));
  choices.push_back(std::move(choice));
}

void add_attention(std::vector<ExplainedChoice>& choices, Runner& runner, AttentionProblem p) {
  const std::string what = fmt::format("{} heads, {} kv heads of {}, window {}, context {}", p.heads, p.kv_heads,
                                       p.key_dim, p.window, p.context);
  for (auto& known : choices) {
    if (known.op == AttentionOp::kName && known.what == what && known.m == p.rows) {
      ++known.calls;
      return;
    }
  }
  ExplainedChoice choice{std::string(AttentionOp::kName),
                         what,
                         std::string(name(p.kv)),
                         "pages",
                         int64_t(p.heads) * p.key_dim,
                         p.context,
                         p.rows,
                         1,
                         {}};
  choice.candidates = describe(runner.ops().attention_planner().rank(p.bucketed()), roof_us(p, runner.hardware()));
  choices.push_back(std::move(choice));
}

void explain_step(std::vector<ExplainedChoice>& choices, Runner& runner, int64_t rows, int64_t sequences,
                  int64_t context) {
  const auto& linears = runner.weights().linears();
  for (const auto& linear : linears) {
    const bool is_head = &linear == &linears.back();
    for (const auto& part : linear.parts)
      add_linear(choices, runner, part.weights, is_head ? sequences : rows, linear.gated);
  }
  for (AttentionProblem problem : runner.attention_problems()) {
    problem.sequences = sequences;
    problem.rows = rows;
    problem.context = context;
    add_attention(choices, runner, problem);
  }
}

}  // namespace

std::vector<ExplainedChoice> explain(Runner& runner, const std::vector<int32_t>& batches, int64_t context) {
  std::vector<ExplainedChoice> choices;
  for (const int32_t batch : batches) explain_step(choices, runner, batch, batch, context);
  const int64_t chunk = std::min(runner.options().rows, context);
  explain_step(choices, runner, chunk, 1, chunk);
  return choices;
}

std::vector<Crossover> crossovers(const Runner& runner) {
  std::vector<Crossover> all;
  for (const auto& linear : runner.weights().linears()) {
    for (const auto& part : linear.parts) {
      Crossover c{part.weights.n, part.weights.k, std::string(name(part.weights.format))};
      const auto same = [&](const Crossover& o) { return o.n == c.n && o.k == c.k && o.format == c.format; };
      if (std::any_of(all.begin(), all.end(), same)) continue;
      const auto* for_one = part.plan.front().second;
      const auto* for_many = part.plan.back().second;
      for (const auto& [m, kernel] : part.plan) {
        if (c.m1 == 0 && kernel != for_one) c.m1 = m;
        if (c.m2 == 0 && kernel == for_many && for_many != for_one) c.m2 = m;
        if (kernel != for_many) c.m2 = 0;
      }
      all.push_back(c);
    }
  }
  return all;
}

}  // namespace millrace
