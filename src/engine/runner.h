// A loaded model with everything a step needs: kernels chosen, weights packed, KV cache and buffers allocated.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/function_ref.h"
#include "engine/memory_plan.h"
#include "engine/score_calibration.h"
#include "engine/step_results.h"
#include "hardware/device.h"
#include "models/batch_tables.h"
#include "models/model.h"

namespace millrace {

struct LoadOptions {
  DeviceChoice device = DeviceChoice::Cpu;
  int threads = 0;                            // 0: one per usable core
  std::string isa;                            // "": all this machine has
  std::map<std::string, std::string> forced;  // op -> kernel
  bool exact = false;                         // f32 activations, KV and arithmetic
  std::optional<DType> kv_type;               // default: f16 (a GPU: the working type), or f32 when exact
  int64_t context = 0;                        // positions per sequence; 0: the model's, or what memory allows
  bool past_training = false;                 // the context may be longer than the model's: for speed, not sense
  int64_t sequences = 1;                      // at once
  int64_t rows = 0;                           // tokens in one step; 0: what this device needs to be busy
  int64_t logit_rows = 0;                     // rows with logits in one step; at least one per sequence
  // Positions that the KV cache holds over all sequences. 0: the context for each of them. kWhatFits: as much of that
  // as memory allows, but at least one context; sequences then wait for pages, or give way to others.
  int64_t kv_tokens = 0;
  static constexpr int64_t kWhatFits = -1;
  int block_size = 64;
  // On a CPU: all of the KV cache is there from the beginning. Else the system clears memory when pages are first
  // written to, up to 2 MB for each layer's keys and values at once, and a step in the middle of streams takes a tenth
  // of a second.
  bool populate_kv = false;
  bool batch_invariant = false;  // a row's results do not depend on what else is in the step: slower
  bool measure = false;          // the machine's ceilings, if they are not known yet
  bool device_draws = false;     // as a GPU does always: tokens are chosen beside the logits, and steps run ahead
};

class Runner {
 public:
  using Progress = std::function<void(int64_t done, int64_t total)>;

  // Reads the config, finds the tensors, chooses layouts and kernels, plans the memory. Touches no weights.
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

  // For calibration: from now on every step notes what the scores of its heads reach, and is never recorded.
  void observe_scores(bool observe);
  Calibration observed_scores();
  // Layers whose heads' scores are known well enough for a unified maximum.
  int64_t calibrated_layers() const;

  // What each layer's attention asks for, with the batch left open.
  std::vector<AttentionProblem> attention_problems() const;

  // The computing threads between two steps; null: they do not compute, and waking them would take too long.
  ThreadPool* helpers() { return device_->is_host() ? pool_.get() : nullptr; }
  // Sends one of the computing threads on an errand (base/thread_pool.h) where every core computes. False: some other
  // thread may do it as well.
  bool errand(std::function<void()> task);
  void finish_errands() { pool_->finish_errands(); }

  const Model& model() const { return *model_; }
  const WeightSource& source() const { return *source_; }
  const Hardware& hardware() const { return device_->hardware(); }
  const MemoryPlan& memory() const { return plan_; }
  const LoadOptions& options() const { return options_; }  // with every default resolved
  const Weights& weights() const { return *weights_; }
  KvCache& kv() { return *kv_; }
  Ops& ops() { return *ops_; }

 private:
  static constexpr size_t kRecordedSteps = 128;  // a shape has two, one for each slot
  // Steps that only decode have few shapes, and launching their kernels one by one would take longer than they run.
  struct RecordedStep {
    int64_t rows = 0, sequences = 0, pages = 0;
    bool draws = false;
    int slot = 0;
    std::unique_ptr<Recording> recording;
  };

  void decide_context();
  void read_calibration();
  void place_calibration();
  void plan_memory();
  Activations::Sizes activation_sizes() const;
  BatchTables::Sizes table_sizes() const;
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
  std::unique_ptr<Device> device_;
  PlanCache plans_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Model> model_;
  MemoryPlan plan_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Activations> activations_;
  std::unique_ptr<BatchTables> tables_;
  std::unique_ptr<StepResults> results_;
  std::unique_ptr<DrawTables> draws_;
  std::vector<std::vector<float>> phi_;       // by layer; empty: not calibrated
  std::unique_ptr<Arena> scores_, observed_;  // phi where the kernels run, and what is observed
  ScoreKnowledge knowledge_;
  bool lost_ = false;
  std::vector<RecordedStep> recorded_;       // the one used last is first
  std::vector<Started> started_;             // in their order; at most Device::kStepsAtOnce
  std::pair<int64_t, int64_t> hidden_rows_;  // first and count of the last step's
};

}  // namespace millrace
