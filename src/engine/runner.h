// A loaded model with everything a step needs: kernels chosen, weights packed, KV cache and buffers allocated.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/function_ref.h"
#include "engine/memory_plan.h"
#include "hardware/hardware.h"
#include "models/model.h"

namespace millrace {

struct LoadOptions {
  int threads = 0;                            // 0: one per usable core
  std::string isa;                            // "": all this machine has
  std::map<std::string, std::string> forced;  // op -> kernel
  bool exact = false;                         // f32 activations, KV and arithmetic
  std::optional<DType> kv_type;               // default: f16, or f32 when exact
  int64_t context = 0;                        // positions per sequence; 0: the model's, or what memory allows
  int64_t sequences = 1;                      // at once
  int64_t rows = 512;                         // tokens in one step
  int64_t logit_rows = 0;                     // rows with logits in one step; at least one per sequence
  // Positions that the KV cache holds over all sequences. 0: the context for each of them. kWhatFits: as much of that
  // as memory allows, but at least one context; sequences then wait for pages, or give way to others.
  int64_t kv_tokens = 0;
  static constexpr int64_t kWhatFits = -1;
  int block_size = 64;
  bool batch_invariant = false;  // a row's results do not depend on what else is in the step: slower
  bool measure = false;          // the machine's ceilings, if they are not known yet
};

class Runner {
 public:
  using Progress = std::function<void(int64_t done, int64_t total)>;

  // Reads the config, finds the tensors, chooses layouts and kernels, plans the memory. Touches no weights.
  Runner(std::shared_ptr<const WeightSource> source, const LoadOptions& options);

  // Packs the weights and allocates what the plan says; refuses where that does not fit.
  void load(const Progress& progress = [](auto, auto) {});

  // One step; the logits of the batch's logit_rows, valid until the next. No allocation, no exception.
  Matrix forward(const Batch& batch) {
    return forward(batch, [] {});
  }
  // `meanwhile` is host work that goes on while the device computes; on the CPU it goes before. The batch must not
  // change.
  Matrix forward(const Batch& batch, FunctionRef<void()> meanwhile);
  // Of the last step's rows without logits: their hidden states after the final norm.
  Matrix hidden() const { return hidden_; }

  const Model& model() const { return *model_; }
  const WeightSource& source() const { return *source_; }
  const Hardware& hardware() const { return hardware_; }
  const MemoryPlan& memory() const { return plan_; }
  const LoadOptions& options() const { return options_; }  // with every default resolved
  const Weights& weights() const { return *weights_; }
  KvCache& kv() { return *kv_; }
  Ops& ops() { return *ops_; }

 private:
  void decide_context();
  void plan_memory();

  std::shared_ptr<const WeightSource> source_;
  LoadOptions options_;
  Hardware hardware_;
  PlanCache plans_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Model> model_;
  MemoryPlan plan_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Activations> activations_;
  Matrix hidden_;
};

}  // namespace millrace
