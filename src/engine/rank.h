// One device's part of a loaded model: the device, its ops, weights, model, state and buffers. Two models in one
// process are two ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/adapters.h"
#include "engine/load_options.h"
#include "engine/mapped_experts.h"
#include "engine/memory_plan.h"
#include "engine/placement.h"
#include "engine/score_calibration.h"
#include "models/batch_tables.h"
#include "models/model.h"

namespace millrace {

struct StepShape {
  int64_t rows = 1, sequences = 1, context = 1;
  int64_t wanted = 1;     // rows that reach the head
  int64_t hidden = 0;     // of those: rows that want hidden states instead of logits
  bool gathered = false;  // the wanted rows are not simply all rows in order
  bool own = true;        // draft heads: the features come from their own previous pass
  bool adapters = false;  // rows have adapters
};

class Rank {
 public:
  using Progress = std::function<void(int64_t done, int64_t total)>;

  // Reads the config, declares the tensors, chooses layouts, and plans kernels and memory by dry passes. Reads no
  // weights. Resolves the defaults of `options` and keeps a reference to it.
  Rank(const WeightSource& source, LoadOptions& options);

  // Packs the weights and allocates the planned memory. Throws if it does not fit.
  void load(const Progress& progress);

  // Enqueues a forward pass over a placed batch. The returned pass holds the results.
  Pass forward(const PlacedBatch& batch);
  // Runs the model's forward pass over a batch of this shape without computing. The ops record what `mode` asks for.
  void dry_pass(const StepShape& shape, Ops::Mode mode, OpTimes* times, std::vector<OpCall>* calls = nullptr);

  // For calibration: every following step records the score range of each head, and no step is recorded for replay.
  void observe_scores(bool observe);
  bool observes_scores() const { return knowledge_.observed != nullptr; }
  Calibration observed_scores();
  int64_t calibrated_layers() const;  // layers whose score ranges allow a unified maximum

  Device& device() { return *device_; }
  const Device& device() const { return *device_; }
  Ops& ops() { return *ops_; }
  DType working() const { return ops_->working(); }
  const Model& model() const { return *model_; }
  const Weights& weights() const { return *weights_; }
  const StateLayout& layout() const { return layout_; }
  StateCache& state() { return *state_; }
  BatchTables& tables() { return *tables_; }
  ThreadPool& pool() { return *options_.pool; }
  const MemoryPlan& memory() const { return plan_; }
  size_t weight_bytes() const;                            // on the device, packed or in place
  const HostShare& host_share() const { return share_; }  // weights that stay in host memory beside a GPU
  const MappedExperts& mapped_experts() const { return mapped_; }
  bool uses_host() const { return share_.any(); }  // steps wait for the CPU
  // Whether steps of so many rows can be recorded: copies of weights beside the device's queue cannot.
  bool can_record(int64_t rows) const;
  bool begin_recording() { return uses_host() ? host_side_->begin_recording() : device_->begin_recording(); }
  std::unique_ptr<Recording> end_recording() {
    return uses_host() ? host_side_->end_recording() : device_->end_recording();
  }
  void drop_recording() noexcept { uses_host() ? host_side_->drop_recording() : device_->drop_recording(); }
  Adapters& adapters() { return *adapters_; }
  // Reads an adapter that fits this model. Any thread may call it once the model is loaded.
  PackedAdapter read_adapter(const std::filesystem::path& path) const {
    return adapters_->read(path, *weights_, *model_);
  }
  int64_t pages() const;  // number of pages of a sequence of the full context

 private:
  void open(const WeightSource& source);
  void plan(const WeightSource& source);
  void make_ops(const WeightSource& source);
  std::unique_ptr<Model> make_model(const WeightSource& source);
  void make_host_ops(const WeightSource& source);
  void open_host();
  void measure_host(const WeightSource& source, const std::vector<Weights::Unit>& units, int64_t missing);
  void place_on_host(const WeightSource& source, int64_t wanted_context, int64_t wanted_kv_tokens);
  PlacementRates placement_rates() const;
  int64_t device_memory() const;
  int64_t host_memory() const;
  int64_t modest_kv_tokens(int64_t wanted) const;
  void map_experts(const WeightSource& source, int64_t wanted_context, int64_t wanted_kv_tokens);
  void map_host_experts(const WeightSource& source);
  void describe_host(const std::vector<Weights::Unit>& units);
  void describe_mapped(const WeightSource& source, const MemoryPlan& plan);
  bool may_use_host() const;
  void decide_context();
  void plan_steps();
  void plan_memory();
  void run_dry(const StepShape& shape, Activations& buffers);
  void read_calibration(const WeightSource& source);
  void place_calibration();
  void decide_slots();
  StateOptions state_options() const;
  BatchTables::Sizes table_sizes() const;
  size_t adapter_bytes() const;  // of those given

  LoadOptions& options_;
  std::string origin_;  // of the weights
  std::unique_ptr<Device> device_;
  PlanCache plans_;
  std::unique_ptr<Device> host_device_;  // the CPU beside a GPU that does not hold all weights; null: it does
  PlanCache host_plans_;
  Link link_;                       // between device and host
  std::vector<ProductCost> costs_;  // of the CPU's products
  std::unique_ptr<Ops> host_ops_;
  std::unique_ptr<HostSide> host_side_;
  bool fits_device_ = true;  // as far as known: no weights need to stay in host memory
  HostGroups host_units_;
  bool stream_experts_ = false;
  HostShare share_;
  ExpertsIn experts_in_ = ExpertsIn::Memory;
  MappedExperts mapped_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Weights> weights_;
  StateLayout layout_;
  int64_t slots_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Adapters> adapters_;
  std::vector<std::pair<std::string, PackedAdapter>> given_adapters_;  // by name, until load()
  bool more_adapters_ = false;                                         // others may come after them
  MemoryPlan plan_;
  Activations activations_;
  std::unique_ptr<StateCache> state_, dry_state_;  // dry_state_ has the shapes and no memory
  std::unique_ptr<BatchTables> tables_;
  std::vector<std::vector<float>> phi_;       // by paged state; empty: not calibrated
  std::unique_ptr<Arena> scores_, observed_;  // phi in the device's memory, and observed scores
  ScoreKnowledge knowledge_;
};

// The instruction sets of this machine up to a level; "": all.
IsaSet allowed_isa(const std::string& level);

}  // namespace millrace
