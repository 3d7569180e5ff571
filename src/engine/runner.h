// Runs steps on a rank: a batch goes in, tokens or logits come out. On devices that support it, steps are recorded and
// run ahead.
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

  // Plans: reads the config, chooses layouts and kernels, computes the memory plan. Reads no weights.
  Runner(std::shared_ptr<const WeightSource> source, const LoadOptions& options);

  // Packs the weights and allocates the planned memory. Throws if it does not fit.
  void load(const Progress& progress = [](auto, auto) {});

  // Runs one step and returns the logits of the batch's logit_rows on the host, valid until the next step. Allocates
  // nothing and throws only if a GPU fails. On a GPU the first step of a shape is recorded, and later ones replay it.
  Matrix forward(const Batch& batch) {
    return forward(batch, [] {});
  }
  // `meanwhile` is host work that runs while the device computes; on the CPU it runs before the step. It must not
  // change the batch.
  Matrix forward(const Batch& batch, FunctionRef<void()> meanwhile);
  // Hidden states of all rows of the last step in device memory, as the model's FeatureTaps say, until the next step.
  // A runner of draft heads has those that continue a draft instead, by row of logits.
  Matrix features() const { return features_; }
  // Hidden states after the final norm, for the rows of the last step that want no logits.
  Matrix hidden();

  // forward() in two parts. run() computes the step and the token of each row of logits: the argmax, or a sample as
  // draws() says. logits() copies the rows, or the wanted ones, to the host.
  // -1: no logit of the row is above -infinity. Behind the tokens of all rows come those of Batch::alternatives, rank
  // after rank. Empty on the CPU.
  std::span<const int32_t> run(const Batch& batch) {
    return run(batch, [] {});
  }
  std::span<const int32_t> run(const Batch& batch, FunctionRef<void()> meanwhile);

  // run() in two parts, for steps that run ahead. start() copies the batch, so that the caller may change it, and
  // enqueues the step. finish() waits for the oldest started step. A second step may take tokens that the first one
  // chooses (Batch).
  bool runs_ahead() const { return draws_->usable(); }
  void start(const Batch& batch);
  std::span<const int32_t> finish();
  void abandon() noexcept;             // after an error: drops all started steps
  bool lost() const { return lost_; }  // abandon() found that the device no longer works
  size_t recorded_steps() const { return recorded_.size(); }

  Matrix logits();
  Matrix logits(std::span<const uint8_t> wanted) { return results_->logits(wanted); }
  DrawTables& draws();  // of the next step, if usable

  // A step holds this lock if its kernels run on a thread pool that other engines may share.
  std::unique_lock<std::mutex> turn() {
    return rank_->device().is_host() || rank_->uses_host() ? rank_->pool().turn() : std::unique_lock<std::mutex>();
  }
  // The computing threads, for use between two steps; null on a GPU, where they sleep and waking them would take too
  // long.
  ThreadPool* helpers() { return rank_->device().is_host() ? &rank_->pool() : nullptr; }
  // Runs a task on one of the computing threads (base/thread_pool.h) if every core computes. False: the caller should
  // use a thread of its own.
  bool errand(std::function<void()> task);
  void finish_errands() { rank_->pool().finish_errands(); }

  const LoadOptions& options() const { return options_; }  // with all defaults resolved
  const WeightSource& source() const { return *source_; }
  Rank& rank() { return *rank_; }
  const Rank& rank() const { return *rank_; }
  const Model& model() const { return rank_->model(); }
  const Hardware& hardware() const { return rank_->device().hardware(); }
  const MemoryPlan& memory() const { return rank_->memory(); }
  StateCache& state() { return rank_->state(); }
  Ops& ops() { return rank_->ops(); }

 private:
  static constexpr size_t kRecordedSteps = 128;    // each shape takes two, one per slot
  static constexpr size_t kRecordedInPieces = 32;  // of steps with hand-overs, which are up to 100 recordings each
  static constexpr int kStepsUntilRetry = 256;     // after a recording for which the GPU lacked memory
  // Steps that only decode have few shapes, and launching their kernels one by one would take longer than running them.
  struct RecordedStep {
    int64_t rows = 0, sequences = 0, logit_rows = 0, pages = 0;
    int64_t adapters = 0;  // Adapters::version(); 0: no row has one
    bool draws = false;
    int slot = 0;
    int32_t alternatives = 0;
    const std::byte* features = nullptr;  // input of draft heads
    std::unique_ptr<Recording> recording;
  };

  // A started step: its slot of the host's input and output tables.
  struct Started {
    int slot = 0;
    int64_t tokens = 0;  // of all rows of logits, with their alternatives
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
  int unrecorded_steps_ = 0;                 // that follow without a recording of new shapes
  std::vector<RecordedStep> recorded_;       // most recently used first
  std::vector<Started> started_;             // oldest first; at most Device::kStepsAtOnce
  Matrix features_;                          // Pass::features; all steps share its memory
  Matrix last_;                              // [wanted rows, hidden]: Pass::last of the last step that was not replayed
  std::pair<int64_t, int64_t> hidden_rows_;  // first row and count in the last step
};

}  // namespace millrace
