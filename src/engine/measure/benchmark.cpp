#include "engine/measure/benchmark.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"
#include "base/interrupt.h"
#include "engine/draft_branch.h"
#include "engine/measure/speculation.h"
#include "engine/step_batch.h"
#include "engine/step_cost.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// Sequences of random tokens, filled to a depth and then extended step by step.
class Streams {
 public:
  Streams(Runner& runner, const BenchmarkCase& test, Drafter* drafter)
      : runner_(runner),
        drafter_(drafter),
        test_(test),
        step_(runner.options().rows, runner.options().places(), runner.options().logit_rows) {
    if (test.width > 1 && runner.state().has_slots())
      fail(ErrorKind::Usage, "drafts of a model with recurrent state have no branches");
    for (const auto& adapter : runner.rank().adapters().all()) adapters_.push_back(adapter->slot);
    std::mt19937 random(42);
    std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(runner.model().config().vocab - 1));
    // Each sequence has its own tokens: equal rows would choose the same experts of a mixture.
    const int32_t longest = test.depth + test.tokens + test.drafts;
    for (int32_t i = 0; i < test.batch; ++i) {
      auto& tokens = tokens_.emplace_back(static_cast<size_t>(longest) + 1);
      std::generate(tokens.begin(), tokens.end(), [&] { return token(random); });
      auto& table = tables_.emplace_back(runner.state().new_table(longest));
      MR_ASSERT(table.reserve(longest));
      slots_.push_back(runner.state().new_slot());
      if (test.drafts > 0) checkpoints_.push_back(runner.state().new_slot());
      for (int32_t branch = 1; branch < test.width; ++branch) branches_.push_back({runner.state().new_table(longest)});
      const SamplingParams params{
          .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 1, .stream = static_cast<uint64_t>(i)};
      if (test.draw) samplers_.emplace_back(params, static_cast<int32_t>(runner.model().config().vocab));
    }
    drafts_.resize(tables_.size() * static_cast<size_t>(test.width) * static_cast<size_t>(test.drafts));
    std::generate(drafts_.begin(), drafts_.end(), [&] { return token(random); });
  }
  ~Streams() {
    for (size_t i = 0; drafter_ != nullptr && i < tables_.size(); ++i) drafter_->forget(i);
  }

  // Extends every sequence from `past` by `count` tokens, in steps as large as the runner allows. Steps hold several
  // prompts, as those of the engine do.
  void prefill(int32_t past, int32_t count) {
    const auto together = static_cast<size_t>(prompts_of_step(runner_.options(), test_.batch, count));
    for (size_t first = 0; first < tables_.size(); first += together) {
      const size_t end = std::min(tables_.size(), first + together);
      for (int32_t done = 0; done < count;) {
        const int32_t rows = std::min<int32_t>(count - done, static_cast<int32_t>(runner_.options().rows));
        const auto wanted = done + rows == count ? StepBatch::Logits::Last : StepBatch::Logits::None;
        step_.clear();
        std::vector<FollowedRows> followed;
        for (size_t row = first; row < end; ++row) {
          followed.push_back({row, tokens_of(row, past + done + rows + 1), tables_[row].pages(),
                              static_cast<int32_t>(step_.rows()), past + done, rows});
          step_.add(slice(row, past + done, rows), past + done, past + count, tables_[row].pages(), wanted,
                    slots_[row].id(), adapter(row));
        }
        runner_.run(step_.batch());
        follow(followed);
        done += rows;
        throw_if_interrupted();
      }
    }
  }

  // If steps can run ahead, starts each one while the previous one runs, with the tokens that that one chooses, as the
  // engine does.
  void generate(int32_t past, int32_t count) {
    const bool ahead = runner_.runs_ahead() && runner_.ops().mode() == Ops::Mode::Run;
    for (int32_t i = 0; i < count; ++i) {
      step_.clear();
      for (size_t row = 0; row < tables_.size(); ++row) {
        const int32_t token = ahead && i > 0 ? ~static_cast<int32_t>(row) : slice(row, past + i, 1)[0];
        step_.add({&token, 1}, past + i, past + i + 1, tables_[row].pages(), StepBatch::Logits::Last, slots_[row].id(),
                  adapter(row));
      }
      ask_for_draws();
      runner_.start(step_.batch());
      if (!ahead || i > 0) runner_.finish();
      if (test_.draw && !runner_.draws().usable()) draw_on_host();
      if (interrupted()) break;
    }
    if (ahead && count > 0) runner_.finish();
    throw_if_interrupted();
  }

  // Steps that verify drafts. Which chain and how much of it is accepted is drawn, not computed, with the same result
  // for all sequences of a step. Tokens of a drafter are taken as far as they are accepted. Returns the tokens of each
  // sequence.
  int32_t generate_drafted(int32_t past, int32_t count) {
    std::mt19937 random(7);
    std::bernoulli_distribution is_right(test_.acceptance), is_second(test_.second);
    int32_t done = 0;
    while (done < count) {
      open_branches(past + done);
      draft(past + done + 1);
      copy_slots(slots_, checkpoints_);
      verify(past + done, 1 + test_.drafts, /*drafts=*/true);
      int32_t chain = 0, accepted = is_right(random) ? 1 : 0;
      for (int32_t branch = 1; branch < test_.width && accepted == 0; ++branch) {
        if (is_second(random)) chain = branch, accepted = 1;
      }
      while (accepted > 0 && accepted < test_.drafts && is_right(random)) ++accepted;
      draw_verified(accepted + 1);
      take_chain(past + done + 1, chain);
      follow_verified(past + done, accepted + 1, chain);
      if (runner_.state().has_slots() && accepted < test_.drafts) {
        // Recurrent state returns to the checkpoint, and the next step computes the accepted tokens again.
        copy_slots(checkpoints_, slots_);
        verify(past + done, 1 + accepted, /*drafts=*/false);
      }
      done += 1 + accepted;
      throw_if_interrupted();
    }
    return done;
  }

  // Returns the tokens of each sequence.
  int32_t run() {
    if (test_.kind == BenchmarkCase::Kind::Generate && test_.drafts > 0)
      return generate_drafted(test_.depth, test_.tokens);
    if (test_.kind == BenchmarkCase::Kind::Prompt) {
      prefill(test_.depth, test_.tokens);
    } else {
      generate(test_.depth, test_.tokens);
    }
    return test_.tokens;
  }

 private:
  // Sequences take the loaded adapters in turn.
  int32_t adapter(size_t row) const { return adapters_.empty() ? -1 : adapters_[row % adapters_.size()]; }

  void ask_for_draws(int64_t rows = 1) {
    if (!runner_.draws().usable()) return;
    const int64_t chains = rows > 1 ? test_.width : 1;
    for (size_t i = 0; i < samplers_.size(); ++i) {
      for (int64_t chain = 0; chain < chains; ++chain)
        runner_.draws().set((static_cast<int64_t>(i) * chains + chain) * rows, samplers_[i], 0, static_cast<int>(rows));
    }
  }
  void draw_on_host() {
    const Matrix logits = runner_.logits();
    for (size_t i = 0; i < samplers_.size(); ++i)
      samplers_[i].sample({logits.row<float>(static_cast<int64_t>(i)), static_cast<size_t>(logits.cols)});
  }
  void verify(int32_t past, int32_t rows, bool drafts) {
    step_.clear();
    for (size_t i = 0; i < tables_.size(); ++i) {
      const StepBatch::Rows logits{drafts ? 0 : rows - 1, rows};
      step_.add(slice(i, past, rows), past, past + rows, tables_[i].pages(), logits, {}, slots_[i].id(), drafts, 0,
                adapter(i));
      for (DraftBranch& branch : drafts ? branches_of(i) : std::span<DraftBranch>())
        step_.add(branch.tokens, past, past + rows, branch.table.pages(), logits, {}, -1, drafts, 0, adapter(i));
    }
    if (drafts) ask_for_draws(rows);
    runner_.run(step_.batch());
  }
  void draw_verified(int32_t rows) {
    if (samplers_.empty() || runner_.draws().usable()) return;
    const Matrix logits = runner_.logits();
    for (size_t i = 0; i < samplers_.size(); ++i) {
      const auto first = static_cast<int64_t>(i) * test_.rows_per_sequence();
      for (int32_t row = 0; row < rows; ++row)
        samplers_[i].sample({logits.row<float>(first + row), static_cast<size_t>(logits.cols)});
    }
  }
  std::span<DraftBranch> branches_of(size_t sequence) {
    const auto each = static_cast<size_t>(test_.width) - 1;
    return std::span(branches_).subspan(sequence * each, each);
  }
  // Branches that compute row `past` and their drafts: a drafter's, or random ones.
  void open_branches(int32_t past) {
    for (size_t i = 0; i < tables_.size(); ++i) {
      for (DraftBranch& branch : branches_of(i)) {
        branch.close();
        MR_ASSERT(fork_pages(runner_.state(), tables_[i], past, past + 1 + test_.drafts, branch.table));
      }
    }
  }
  // Drafts for sequences of so many known tokens, written behind them. The rejected ones are replaced by others, as the
  // model's own choice would.
  void draft(int32_t length) {
    asks_.clear();
    const auto most = static_cast<size_t>(test_.drafts);
    const auto ask = [&](size_t sequence, std::span<const int32_t> pages, int32_t branch) {
      const auto buffer = std::span(drafts_).subspan(asks_.size() * most, most);
      asks_.push_back({sequence, tokens_of(sequence, length), buffer, 0, pages, branch});
    };
    for (size_t i = 0; i < tables_.size(); ++i) {
      ask(i, tables_[i].pages(), 0);
      int32_t number = 0;
      for (const DraftBranch& branch : branches_of(i)) ask(i, branch.table.pages(), ++number);
    }
    if (drafter_ != nullptr) drafter_->draft_all(asks_);
    const auto width = static_cast<size_t>(test_.width);
    for (size_t i = 0; i < tables_.size(); ++i) {
      std::copy_n(asks_[i * width].draft.begin(), asks_[i * width].given, tokens_[i].begin() + length);
      for (size_t b = 0; b + 1 < width; ++b) {
        const auto drafted = asks_[i * width + b + 1].draft;
        DraftBranch& branch = branches_of(i)[b];
        branch.tokens.assign(1, tokens_[i][static_cast<size_t>(length) - 1]);
        branch.tokens.insert(branch.tokens.end(), drafted.begin(), drafted.end());
      }
    }
  }
  // All sequences go on with this chain. Their tables keep the pages behind it, which later steps need.
  void take_chain(int32_t length, int32_t chain) {
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (chain > 0) {
        DraftBranch& branch = branches_of(i)[static_cast<size_t>(chain) - 1];
        tables_[i].swap(branch.table);
        std::copy_n(branch.draft().begin(), branch.draft().size(), tokens_[i].begin() + length);
      }
      for (DraftBranch& branch : branches_of(i)) branch.close();
      MR_ASSERT(tables_[i].reserve(test_.depth + test_.tokens + test_.drafts));
    }
  }
  void follow_verified(int32_t position, int32_t rows, int32_t chain) {
    if (drafter_ == nullptr) return;
    std::vector<FollowedRows> all;
    for (size_t i = 0; i < tables_.size(); ++i) {
      const int32_t next = position + rows;  // chosen by the model: not the rejected draft
      const auto at = static_cast<size_t>(next);
      if (rows <= test_.drafts)
        tokens_[i][at] = (tokens_[i][at] + 1) % static_cast<int32_t>(runner_.model().config().vocab);
      const auto row =
          static_cast<int32_t>(static_cast<int64_t>(i) * test_.rows_per_sequence()) + chain * (1 + test_.drafts);
      all.push_back({i, tokens_of(i, next + 1), tables_[i].pages(), row, position, rows, /*drafts=*/true,
                     /*decoded=*/true, /*alternatives=*/test_.width - 1});
    }
    follow(all);
  }
  void follow(std::span<const FollowedRows> rows) {
    if (drafter_ != nullptr && drafter_->follows()) drafter_->follow(rows);
  }
  void follow(std::initializer_list<FollowedRows> rows) { follow(std::span(rows.begin(), rows.size())); }
  void copy_slots(const std::vector<Slot>& from, const std::vector<Slot>& to) {
    if (!runner_.state().has_slots()) return;
    for (size_t i = 0; i < from.size(); ++i) runner_.state().copy_slot(from[i].id(), to[i].id());
  }
  std::span<const int32_t> slice(size_t sequence, int32_t begin, int32_t count) const {
    return std::span(tokens_[sequence]).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  }
  std::span<const int32_t> tokens_of(size_t sequence, int32_t count) const { return slice(sequence, 0, count); }

  Runner& runner_;
  Drafter* drafter_;  // null: drafts cost nothing
  const BenchmarkCase& test_;
  StepBatch step_;
  std::vector<std::vector<int32_t>> tokens_;  // by sequence
  std::vector<int32_t> drafts_;               // [sequences, width, drafts]
  std::vector<DraftBranch> branches_;         // [sequences, width - 1]
  std::vector<DraftAsk> asks_;
  std::vector<int32_t> adapters_;  // slots
  std::vector<BlockTable> tables_;
  std::vector<Slot> slots_, checkpoints_;
  std::vector<Sampler> samplers_;  // empty: argmax
};

// Time of the whole case: the sum over its steps.
StepCost case_cost(Runner& runner, const BenchmarkCase& t, Runner* passes) {
  StepCost total;
  const auto add = [&](const StepCost& step, int64_t times) {
    total.expected.add(step.expected, times);
    total.roof_us += step.roof_us * static_cast<double>(times);
  };
  if (t.kind == BenchmarkCase::Kind::Generate && t.drafts > 0) {
    const int64_t rows = t.batch * t.rows_per_sequence(), chains = int64_t{t.batch} * t.width;
    const int64_t context = t.depth + t.tokens / 2;
    add(step_cost(runner, rows, chains, context, rows), 1);
    if (passes != nullptr) {
      add(step_cost(*passes, t.batch, t.batch, context, t.batch), 1);
      add(step_cost(*passes, chains, chains, context, chains), t.drafts - 1);
    }
    if (chains > t.batch)
      total.expected.add("copy", copy_page_us(runner) * static_cast<double>(chains - t.batch), chains - t.batch);
    const double steps = t.tokens / tokens_per_step(t.drafts, t.acceptance, t.width, t.second);
    for (auto& entry : total.expected.entries) entry.us *= steps;
    total.roof_us *= steps;
    return total;
  }
  if (t.kind == BenchmarkCase::Kind::Generate) {
    add(step_cost(runner, t.batch, t.batch, t.depth + t.tokens / 2, t.batch), t.tokens);
    return total;
  }
  const int64_t together = prompts_of_step(runner.options(), t.batch, t.tokens), rest = t.batch % together;
  for (int64_t done = 0; done < t.tokens;) {
    const int64_t rows = std::min<int64_t>(t.tokens - done, runner.options().rows);
    done += rows;
    const auto add_steps = [&](int64_t prompts, int64_t times) {
      if (prompts * times > 0) add(step_cost(runner, prompts * rows, prompts, t.depth + done, prompts), times);
    };
    add_steps(together, t.batch / together);
    add_steps(rest, 1);
  }
  return total;
}

}  // namespace

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

int64_t BenchmarkCase::positions(int block_size) const {
  const int64_t pages = (depth + tokens + drafts + block_size - 1) / block_size;
  const int64_t of_branch = width > 1 ? drafts / block_size + 2 : 0;
  return int64_t{batch} * (pages + (width - 1) * of_branch) * block_size;
}

int64_t prompts_of_step(const LoadOptions& options, int64_t batch, int64_t tokens) {
  return std::clamp<int64_t>(std::min({options.rows / tokens, options.sequences, options.logit_rows}), 1, batch);
}

void size_for(LoadOptions& options, std::span<const BenchmarkCase> cases) {
  options.kv_tokens = 0;
  for (const BenchmarkCase& c : cases) {
    options.sequences = std::max<int64_t>(options.sequences, c.batch);
    options.context = std::max<int64_t>(options.context, c.depth + c.tokens + c.drafts);
    if (c.drafts > 0) options.logit_rows = std::max(options.logit_rows, c.batch * c.rows_per_sequence());
    const int64_t chains = c.drafts > 0 ? int64_t{c.batch} * c.width : 0;
    options.branches = std::max(options.branches, chains - options.sequences);
    options.kv_tokens = std::max(options.kv_tokens, c.positions(options.block_size));
  }
}

FittingCases cases_that_fit(std::vector<BenchmarkCase> cases, LoadOptions options,
                            FunctionRef<bool(const LoadOptions&)> fits) {
  const auto size = [&](const BenchmarkCase& c) { return c.positions(options.block_size); };
  FittingCases result{std::move(cases), {}};
  while (true) {
    LoadOptions sized = options;
    size_for(sized, result.fit);
    const auto is_largest = [&](const BenchmarkCase& c) { return size(c) == sized.kv_tokens; };
    if (std::all_of(result.fit.begin(), result.fit.end(), is_largest) || fits(sized)) return result;
    std::copy_if(result.fit.begin(), result.fit.end(), std::back_inserter(result.too_large), is_largest);
    std::erase_if(result.fit, is_largest);
  }
}

std::string BenchmarkCase::name() const { return fmt::format("{}{}", kind == Kind::Prompt ? "pp" : "tg", tokens); }

BenchmarkResult run_benchmark(Runner& runner, const BenchmarkCase& test, int repetitions, Drafter* drafter) {
  Streams streams(runner, test, drafter);
  if (test.depth > 0) streams.prefill(0, test.depth);
  streams.run();
  BenchmarkResult result{test, {}, 0, 0, {}};
  for (int i = 0; i < repetitions; ++i) {
    const auto start = Clock::now();
    const double tokens = double(streams.run()) * test.batch;
    result.samples.push_back(tokens / std::chrono::duration<double>(Clock::now() - start).count());
  }
  result.median = median_of(result.samples);
  Runner* passes = drafter == nullptr ? nullptr : drafter->passes();
  const double best_possible = double(test.tokens) * test.batch / (case_cost(runner, test, passes).roof_us * 1e-6);
  result.percent_of_roof = 100 * result.median / best_possible;
  const std::vector<Runner*> observed = passes == nullptr ? std::vector{&runner} : std::vector{&runner, passes};
  for (Runner* one : observed) one->ops().observe(Ops::Mode::Measure, &result.ops);
  streams.run();
  for (Runner* one : observed) one->ops().observe(Ops::Mode::Run);
  return result;
}

BenchmarkResult predict_benchmark(Runner& runner, const BenchmarkCase& test, Runner* passes) {
  const StepCost cost = case_cost(runner, test, passes);
  const double tokens = double(test.tokens) * test.batch;
  const double us = cost.expected_us();
  return {test, {}, tokens / (us * 1e-6), 100 * cost.roof_us / us, cost.expected};
}

}  // namespace millrace
