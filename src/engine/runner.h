// A loaded model that runs steps: batches go in, tokens or logits come out. Steps are recorded and run ahead where the
// device can.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/function_ref.h"
#include "engine/rank.h"
#include "engine/step_results.h"

namespace millrace {

class Runner {
 public:
  using Progress = Rank::Progress;

  // Plans: reads the config, chooses layouts and kernels, adds up the memory. Touches no weights.
  Runner(std::shared_ptr<const WeightSource> source, const LoadOptions& options);

  // Packs the weights and allocates what the plan says; refuses where that does not fit.
  void load(const Progress& progress = [](auto, auto) {});

  // One step; the logits of the batch's logit_rows on the host, valid until the next. No allocation, no exception, but
  // for a GPU that fails. On a GPU the first step of a shape is recorded, later ones replay it.
  Matrix forward(const Batch& batch) {
    return forward(batch, [] {});
  }
  // `meanwhile` is host work that goes on while the device computes; on the CPU it goes before. The batch must not
  // change.
  Matrix forward(const Batch& batch, FunctionRef<void()> meanwhile);
  // Of the last step's rows without logits: their hidden states after the final norm.
  Matrix hidden();

  // The same in two parts: run() computes the step and the token of each logits row, the likeliest or what draws()
  // says; logits() brings the rows themselves, or the wanted ones, for those who need more than that.
  std::span<const int32_t> run(const Batch& batch) {  // -1 where no logit is a number; empty on the CPU
    return run(batch, [] {});
  }
  std::span<const int32_t> run(const Batch& batch, FunctionRef<void()> meanwhile);

  // The same in halves, where steps run ahead: start() places the batch, which may change then, and enqueues the step;
  // finish() waits for the one started first. The second may begin with tokens that the first one chooses (Batch).
  bool runs_ahead() const { return draws_->usable(); }
  void start(const Batch& batch);
  std::span<const int32_t> finish();
  void abandon() noexcept;             // after an error: nothing is under way any more
  bool lost() const { return lost_; }  // the device does not work any more, as abandon() found

  Matrix logits();
  Matrix logits(std::span<const uint8_t> wanted) { return results_->logits(wanted); }
  DrawTables& draws();  // of the next step, where usable

  // Where kernels run on the threads of a pool that other engines may share, a step holds this.
  std::unique_lock<std::mutex> turn() {
    return rank_->device().is_host() ? rank_->pool().turn() : std::unique_lock<std::mutex>();
  }
  // The computing threads between two steps; null: they do not compute, and waking them would take too long.
  ThreadPool* helpers() { return rank_->device().is_host() ? &rank_->pool() : nullptr; }
  // Sends one of the computing threads on an errand (base/thread_pool.h) where every core computes. False: some other
  // thread may do it as well.
  bool errand(std::function<void()> task);
  void finish_errands() { rank_->pool().finish_errands(); }

  const LoadOptions& options() const { return options_; }  // with every default resolved
  const WeightSource& source() const { return *source_; }
  Rank& rank() { return *rank_; }
  const Rank& rank() const { return *rank_; }
  const Model& model() const { return rank_->model(); }
  const Hardware& hardware() const { return rank_->device().hardware(); }
  const MemoryPlan& memory() const { return rank_->memory(); }
  StateCache& state() { return rank_->state(); }
  Ops& ops() { return rank_->ops(); }

 private:
  static constexpr size_t kRecordedSteps = 128;  // a shape has two, one for each slot
  // Steps that only decode have few shapes, and launching their kernels one by one would take longer than they run.
  struct RecordedStep {
    int64_t rows = 0, sequences = 0, pages = 0;
    bool draws = false;
    int slot = 0;
    std::unique_ptr<Recording> recording;
  };

  // A step that was started: which of the slots for what the host gives and gets is its own.
  struct Started {
    int slot = 0;
    int64_t rows = 0;  // of tokens
  };
  int next_slot() const { return started_.empty() ? 0 : 1 - started_.back().slot; }
  void compute(const PlacedBatch& batch, int slot);
  void replay_or_record(const PlacedBatch& batch, int64_t pages, int slot);
  std::unique_ptr<Recording> recorded(const PlacedBatch& batch, int slot);

  std::shared_ptr<const WeightSource> source_;
  LoadOptions options_;
  std::unique_ptr<Rank> rank_;
  std::unique_ptr<StepResults> results_;
  std::unique_ptr<DrawTables> draws_;
  bool lost_ = false;
  std::vector<RecordedStep> recorded_;       // the one used last is first
  std::vector<Started> started_;             // in their order; at most Device::kStepsAtOnce
  Matrix last_;                              // [wanted rows, hidden]: Pass::last of the last step that was not replayed
  std::pair<int64_t, int64_t> hidden_rows_;  // first and count of the last step's
};

}  // namespace millrace
