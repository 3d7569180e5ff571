// The tensors of one model: declared first, so that sizes and shapes are known and the memory plan can refuse, then
// packed.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "dataflow/ops.h"
#include "formats/weight_source.h"
#include "models/rope_frequencies.h"

namespace millrace {

// One tensor's name in both conventions; names are completed with the layer's prefix by Weights::Layer.
struct TensorName {
  std::string gguf, hf;
};

// Matrices [rows, k] stacked along rows make one linear layer.
struct LinearPart {
  TensorName name;
  int64_t rows = 0;
};

class Weights {
 public:
  Weights(const WeightSource& source, Ops& ops);

  const WeightSource& source() const { return source_; }
  bool has(const TensorName& name) const;
  // A bias is looked for under the weight's name with ".bias"; parts without one add nothing.
  const Linear* linear(const std::vector<LinearPart>& parts, int64_t k);
  // gate and up, as two parts or as one: on devices that can, the layer gives act(gate) * up at once (Linear::gated).
  const Linear* gate_up(const std::vector<LinearPart>& parts, int64_t k, Activation activation);
  const float* vector(const TensorName& name, int64_t n, float add = 0);  // as f32; `add`: gemma stores weight - 1
  const float* optional_vector(const TensorName& name, int64_t n);        // null where the file has none
  // Rows to look up, as the file holds them: there after pack().
  const WeightView* table(const TensorName& name, int64_t rows, int64_t cols);
  RopeFrequencies placed(RopeFrequencies frequencies);  // copied to where the kernels run
  void ignore(const std::string& fragment);             // tensors whose name contains it are known not to matter

  // Tensors nobody asked for would be silently left out of the results: refuse the model.
  void check_all_used() const;

  size_t packed_bytes() const;    // what pack() will allocate
  size_t in_place_bytes() const;  // file pages read in every step
  void pack(const std::function<void(int64_t done, int64_t total)>& progress);
  std::deque<Linear>& linears() { return linears_; }
  const std::deque<Linear>& linears() const { return linears_; }

  // Names below one layer: Layer(weights, 3, {"blk.{}.", "model.layers.{}."}).
  class Layer;

 private:
  struct Pending {  // one Linear::Part before packing
    Linear* linear;
    size_t part;
    std::vector<WeightView> sources;
  };
  std::string resolve(const TensorName& name) const;
  WeightView find(const std::string& name, int64_t rows, int64_t cols);
  const float* stacked_bias(const std::vector<LinearPart>& parts, int64_t n);
  void add_part(Linear& linear, std::vector<WeightView> sources);
  const float* keep(std::vector<float> values);  // where the kernels run
  bool on_device() const { return !ops_.device().is_host(); }
  bool can_gate(const Linear& linear, Activation activation) const;
  const WeightView* table_like(const Pending& pending) const;
  void upload(const std::function<void(int64_t done, int64_t total)>& progress);

  const WeightSource& source_;
  Ops& ops_;
  std::deque<Linear> linears_;
  std::deque<WeightView> tables_;
  std::deque<std::vector<float>> vectors_;
  std::deque<Arena> device_vectors_;  // some at a time: they are small, and there is one for every norm
  std::vector<Pending> pending_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> ignored_;
  std::unique_ptr<Arena> arena_;
  size_t in_place_bytes_ = 0;
};

class Weights::Layer {
 public:
  Layer(Weights& weights, int64_t index, const TensorName& prefix_pattern);
  bool has(const TensorName& name) const { return weights_.has(below(name)); }
  const Linear* linear(std::vector<LinearPart> parts, int64_t k);
  const Linear* gate_up(std::vector<LinearPart> parts, int64_t k, Activation activation);
  const float* vector(const TensorName& name, int64_t n, float add = 0) { return weights_.vector(below(name), n, add); }
  const float* optional_vector(const TensorName& name, int64_t n) { return weights_.optional_vector(below(name), n); }

 private:
  TensorName below(const TensorName& name) const { return {prefix_.gguf + name.gguf, prefix_.hf + name.hf}; }
  Weights& weights_;
  TensorName prefix_;
};

}  // namespace millrace
