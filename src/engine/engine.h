// Runs requests together: every step advances all running sequences by a token, or by several where drafts are right,
// and spends what room is left on the prompts that wait. The contract is in README.md beside this file.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "base/function_ref.h"
#include "engine/drafter.h"
#include "engine/engine_stats.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/step_batch.h"

namespace millrace {

struct EngineOptions {
  // Prompts are computed in chunks beside the streams that run. A step may then take this long; 0: as long as a step
  // without the chunk, and prefill_slack more. With no stream running, chunks are as large as the runner takes.
  double tpot_target_ms = 0;
  // On a CPU a chunk costs by the row, and streams would feel it; a GPU has room beside few decodes. 0: 0.1 and 0.25.
  double prefill_slack = 0;
  bool prefix_cache = true;  // pages of prompts and answers are kept for those that begin alike
  // Guesses tokens, which steps check; it outlives the engine. Rows of drafts need logits: LoadOptions::logit_rows has
  // to leave room for them beside one row for each sequence.
  Drafter* drafter = nullptr;
  int32_t draft_tokens = 4;  // of one sequence in a step, at most
};

class Engine {
 public:
  explicit Engine(Runner& runner, const EngineOptions& options = {});
  ~Engine();

  // Queues a request. Throws Usage where it could never run: no prompt, a token out of range, more than the context
  // holds.
  RequestId submit(Request request) { return submit(prepare(std::move(request))); }
  static constexpr int32_t kAllChoices = -1;
  void cancel(RequestId id, int32_t choice = kAllChoices);  // its pages are free at once; an unknown id is ignored

  // The same in two halves: the first checks and allocates, and may be called on any thread at any time.
  std::unique_ptr<Sequence> prepare(Request request);
  RequestId submit(std::unique_ptr<Sequence> prepared);

  // One forward pass; emits one token for each choice that generates, and one more for each draft that was right.
  // False: nothing left to do. Where the device chooses tokens itself, the next pass is under way when the tokens of
  // this one are emitted.
  bool step(FunctionRef<void(const Emission&)> emit) {
    return step(emit, [] {});
  }
  // `meanwhile` runs while the device computes: it may submit, and nothing else. On the CPU it runs before, for there
  // all cores compute.
  bool step(FunctionRef<void(const Emission&)> emit, FunctionRef<void()> meanwhile);

  // What would otherwise be worked out when a prompt first joins running streams, while they wait.
  void prepare_pace() { pacer_.prepare(); }

  size_t running() const { return scheduler_.running().size(); }
  size_t waiting() const { return scheduler_.waiting().size(); }
  void fill(EngineStats& stats);  // all but what Service alone knows

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void check(const Request& request) const;
  int32_t most_drafts(const Request& request) const;
  struct Step {
    Scheduler::Plan plan;
    std::vector<uint8_t> on_host;  // by row of logits: whether its token is drawn there
    int64_t rows = 0;
    double begin = 0;      // of its own time on the device
    bool started = false;  // before its turn
    bool needs_logits() const { return std::find(on_host.begin(), on_host.end(), 1) != on_host.end(); }
  };
  bool compose();  // the step that is next, unless it was started ahead; false: there is none
  void ask_for_draws(Step& step);
  bool draws_on_device(const Scheduler::Part& part, int64_t logit_row);
  std::span<const int32_t> compute(FunctionRef<void()> meanwhile);
  void start_ahead();
  bool draws_ahead(const Step& step);
  void drop_ahead();  // of those it was started for, nobody is left
  // Rows of logits are there for those whose tokens the device did not choose.
  void collect(Matrix logits, std::span<const int32_t> tokens, FunctionRef<void(const Emission&)> emit);
  // Draws the next tokens of all that draw here, on all threads.
  void draw(Matrix logits);
  void count_step();
  void take_generated(const Scheduler::Part& part, int64_t logit_row, std::span<const int32_t> tokens,
                      FunctionRef<void(const Emission&)> emit);
  void complete_prompt(Sequence& sequence, Matrix logits, FunctionRef<void(const Emission&)> emit);
  void emit_with_times(Emission emission, Sequence& sequence, FunctionRef<void(const Emission&)> emit);

  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
  Runner& runner_;
  const int32_t draft_tokens_;  // 0: there is no drafter
  StepPacer pacer_;
  Scheduler scheduler_;
  StepBatch batch_;
  Step step_, ahead_;  // the one whose turn it is, and the next one, where it was started
  struct Drawing {
    Sequence* sequence;
    Matrix logits;  // of its pending rows
  };
  std::vector<Drawing> drawing_;  // of this step
  std::vector<float> forked_;     // logits that several choices draw from
  std::atomic<RequestId> next_id_{1};
  EngineStats totals_;
};

}  // namespace millrace
