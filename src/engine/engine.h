// Runs requests together. Every step advances all generating sequences by one token, or by more if drafts are accepted,
// and fills the remaining rows with prompt chunks. CONTRACT.md in this folder says what callers may rely on.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "base/function_ref.h"
#include "engine/drafter.h"
#include "engine/engine_stats.h"
#include "engine/parking.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/saved_prefix.h"
#include "engine/scheduler.h"
#include "engine/step_batch.h"
#include "hardware/energy.h"
#include "models/pooling_settings.h"

namespace millrace {

struct EngineOptions {
  // Time limit of a step that computes prompt chunks beside generating sequences. 0: the time of the step without the
  // chunk, times 1 + prefill_slack. If no sequence generates, chunks are as large as the runner allows.
  double tpot_target_ms = 0;
  // 0: 0.1 on a CPU, where every row of a chunk costs time, and 0.25 on a GPU, where a few rows beside decodes are
  // cheap.
  double prefill_slack = 0;
  bool prefix_cache = true;  // keep pages of prompts and answers for later requests with the same prefix
  // Takes the state of parked sessions that leaves the device; must outlive the engine. Null: it is dropped.
  ParkedStates* parked = nullptr;
  // Proposes draft tokens; must outlive the engine. Draft rows need logits, so LoadOptions::logit_rows must exceed the
  // number of sequences.
  Drafter* drafter = nullptr;
  int32_t draft_tokens = 4;  // per sequence and step, at most
  // Drafts per sequence and step, at most: one, and branches that begin with other tokens (draft_branch.h), up to
  // kMostBranches. Only drafters that follow sequences know other tokens.
  int32_t draft_width = 1;
  // Verify only as many draft tokens and branches as raise the expected rate. Otherwise every draft is verified whole.
  bool drafts_by_cost = false;

  void draft_with(Drafter& proposes) {
    drafter = &proposes;
    draft_tokens = proposes.most_tokens();
    draft_width = 1 + kMostBranches;
    drafts_by_cost = true;
  }
};

class Engine {
 public:
  explicit Engine(Runner& runner, const EngineOptions& options = {});
  ~Engine();

  // Queues a request. Throws Usage for a request that can never run: an empty prompt, a token out of range, a prompt
  // longer than the context.
  RequestId submit(Request request) { return submit(prepare(std::move(request))); }
  static constexpr int32_t kAllChoices = -1;
  void cancel(RequestId id, int32_t choice = kAllChoices);  // frees its pages at once; an unknown id is ignored

  // submit() in two parts. prepare() checks and allocates, and may be called on any thread at any time.
  std::unique_ptr<Sequence> prepare(Request request);
  RequestId submit(std::unique_ptr<Sequence> prepared);

  // Runs one forward pass. Emits one token for each choice that generates, and one more for each accepted draft.
  // Returns false if no work is left. If the device chooses tokens itself, the next pass is already running while the
  // tokens of this one are emitted.
  bool step(FunctionRef<void(const Emission&)> emit) {
    return step(emit, [] {});
  }
  // `meanwhile` runs while the device computes and may only submit. On the CPU it runs before the step, because the
  // step uses all cores.
  bool step(FunctionRef<void(const Emission&)> emit, FunctionRef<void()> meanwhile);

  // Computes the estimates of the pacer in advance. Otherwise the first prompt beside generating sequences would delay
  // them.
  void prepare_pace() { pacer_.prepare(); }

  // The cached state of a beginning of `tokens`, and its way back into an engine with the same model and KV format.
  // Call between requests.
  SavedPrefix save_prefix(std::span<const int32_t> tokens) {
    return millrace::save_prefix(runner_.state(), scheduler_.tree(), runner_.rank().device(), tokens);
  }
  int32_t restore_prefix(std::span<const int32_t> tokens, std::span<const std::byte> pages) {
    return millrace::restore_prefix(runner_.state(), scheduler_.tree(), runner_.rank().device(), tokens, pages);
  }

  // A session whose client runs a tool: its state is kept until the session goes on. `tokens` are its last prompt and
  // answer. Without EngineOptions::parked these functions do nothing.
  void park(const Adapter* adapter, std::span<const int32_t> tokens);
  void forget_parked(const Adapter* adapter, std::span<const int32_t> tokens);
  void save_parked();  // copies the state of all parked sessions out of the device
  // Where the state of a session is, and how many of its tokens need not be computed.
  ParkedStates::Found parked_place(const Adapter* adapter, std::span<const int32_t> tokens);

  size_t running() const { return scheduler_.running().size(); }
  size_t waiting() const { return scheduler_.waiting().size(); }
  void fill(EngineStats& stats);  // all fields except those that only Service knows

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void check(const Request& request) const;
  PrefixKey key_of(const Adapter* adapter, size_t tokens) const;
  int32_t most_drafts(const Request& request) const;
  int32_t most_branches(const Request& request) const;
  struct Step {
    Scheduler::Plan plan;
    std::vector<uint8_t> on_host;  // by row of logits: 1 if the host draws its token
    int64_t rows = 0;
    double begin = 0;      // start of its time on the device
    bool started = false;  // ahead, while the previous step ran
    bool needs_logits() const { return std::find(on_host.begin(), on_host.end(), 1) != on_host.end(); }
  };
  bool compose();  // composes the next step unless it was started ahead; false: no work
  void ask_for_draws(Step& step);
  bool draws_on_device(const Scheduler::Part& part, int64_t logit_row);
  std::span<const int32_t> compute(FunctionRef<void()> meanwhile);
  void start_ahead();
  bool draws_ahead(const Step& step);
  void drop_ahead();  // none of its sequences is left
  // `logits` holds only the rows whose tokens the device did not choose.
  void collect(Matrix logits, std::span<const int32_t> tokens, FunctionRef<void(const Emission&)> emit);
  // Draws the next tokens of all sequences that draw on the host, in parallel.
  void draw(Matrix logits);
  void count_step();
  void take_generated(const Scheduler::Part& part, int64_t logit_row, std::span<const int32_t> tokens,
                      FunctionRef<void(const Emission&)> emit);
  void complete_prompt(Sequence& sequence, Matrix logits, FunctionRef<void(const Emission&)> emit);
  void emit_with_times(Emission emission, Sequence& sequence, FunctionRef<void(const Emission&)> emit);

  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
  Runner& runner_;
  const int32_t draft_tokens_, draft_width_;  // 0 tokens: no drafter
  StepPacer pacer_;
  PowerMeter power_;
  Scheduler scheduler_;
  ParkedStates* const parked_;
  std::optional<Parking> parking_;
  StepBatch batch_;
  Step step_, ahead_;  // current step, and the next one if it was started
  struct Drawing {
    Sequence* sequence;
    Matrix logits;  // of its pending rows
  };
  std::vector<Drawing> drawing_;   // of this step
  std::vector<float> forked_;      // logits from which several choices draw
  const PoolingSettings pooling_;  // as the model's files say
  std::atomic<RequestId> next_id_{1};
  EngineStats totals_;
};

}  // namespace millrace
