// The tensors of one model. An architecture first declares them, which gives the memory plan their sizes and reads no
// weights. pack() then reads them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dataflow/ops.h"
#include "formats/weight_source.h"
#include "models/rope_frequencies.h"
#include "models/stored_rows.h"

namespace millrace {

// A tensor's name in both conventions. Weights::Layer prepends the prefix of its layer.
struct TensorName {
  std::string gguf, hf;
};

// The bias of a weight's name. Empty: a tensor of this name has none.
std::string bias_name(std::string weight);

// A matrix [rows, k]. Parts stacked along rows form one linear layer.
struct LinearPart {
  TensorName name;
  int64_t rows = 0;
  bool transposed = false;   // the file has [k, rows]
  RowGroups stored_by = {};  // of the matrix and its bias
  TensorName bias_of = {};   // the weight that the bias is named after; empty: `name`
};

// A tensor as a GGUF file stores it, made of pieces of the source. `millrace convert` writes files from this list.
struct DeclaredTensor {
  std::string gguf;                // its name
  std::vector<int64_t> shape;      // outermost dimension first
  std::vector<WeightView> pieces;  // stacked along rows
  bool transposed = false;         // the pieces are [columns, rows]
  float add = 0;                   // to each value
  float (*map)(float) = nullptr;   // of each value
};

// Weights of a device that does not hold all of them. A unit is a linear layer, or the experts of a layer; units are
// numbered in the order of their declaration.
struct HostUnits {
  Ops* ops = nullptr;               // compute the units below; null: there are none
  std::map<size_t, int64_t> units;  // number of a unit's last experts that are on the host; 1 for a linear layer
  bool stream = false;              // units are kept in the device's layout, too, so that prompts can copy them there
};

// Where the experts of a mixture lie that the CPU computes. Experts in the file keep its layout, and the system reads
// and drops their pages as steps need them.
enum class ExpertsIn : uint8_t { Memory, File };

class Weights {
 public:
  Weights(const WeightSource& source, Ops& ops, HostUnits host = {}, ExpertsIn experts_in = ExpertsIn::Memory);

  using GroupSources = std::vector<std::vector<WeightView>>;  // by group

  const WeightSource& source() const { return source_; }
  bool has(const TensorName& name) const;
  // Biases are found under the weights' names with ".bias"; a part without bias gets zeros.
  // `other_parts`: as other exporters divide the same rows; adapters know the layer by them, too.
  const Linear* linear(const std::vector<LinearPart>& parts, int64_t k, std::vector<LinearPart> other_parts = {});
  // gate and up, as two parts or as one. If a kernel supports it, the layer computes act(gate) * up itself
  // (Linear::gated).
  const Linear* gate_up(const std::vector<LinearPart>& parts, int64_t k, Activation activation);
  // A matrix for each group, stacked from sources[group] (one view, or gate and up). `settings` has everything but the
  // weights. `transposed`: the views are [k, n]. Views of different formats, and formats that cannot be transposed, are
  // expanded to 16 bits, or to f32 if results are exact.
  const Grouped* grouped(Grouped settings, GroupSources sources, bool transposed = false);
  // The experts of a mixture, as grouped(). `whole`: under this name adapters know all parts as one matrix; rows 0:
  // none.
  const Grouped* experts(Grouped settings, GroupSources sources, std::vector<LinearPart> parts, LinearPart whole);
  // A tensor of any rank as views of its matrices or vectors: [a, b, c] becomes a views [b, c], [a, b] a views [1, b].
  std::vector<WeightView> slices(const TensorName& name, std::initializer_list<int64_t> shape);
  const Vector* vector(const TensorName& name, int64_t n,
                       float add = 0);  // as f32, plus `add`: gemma stores weight - 1
  const Vector* mapped_vector(const TensorName& name, int64_t n, float (*map)(float));  // as f32, map of each value
  const Vector* optional_vector(const TensorName& name, int64_t n);                     // null if the file has none
  // All elements of a tensor of this shape as one vector, each passed through `map`.
  const Vector* flat_vector(const TensorName& name, std::initializer_list<int64_t> shape,
                            float (*map)(float) = nullptr);
  // Vectors [n] of all heads as one. "{}" in a name stands for the head; a name without it is a tensor [heads, n].
  const Vector* head_vectors(const TensorName& name, int heads, int64_t n);
  const Vector* stacked_vector(const std::vector<WeightView>& pieces);
  // An embedding table in the file's format, in device memory after pack().
  const WeightView* table(const TensorName& name, int64_t rows, int64_t cols);
  RopeFrequencies placed(RopeFrequencies frequencies);  // its tables are in device memory after pack()
  bool on_device() const { return !ops_.device().is_host(); }
  void ignore(const std::string& fragment);  // tensors whose names contain this do not affect results

  // Declares a tensor of GGUF files whose parts a Hugging Face folder stores otherwise: stacked or apart. Names without
  // a GGUF part are skipped.
  void declare(DeclaredTensor tensor);
  std::span<const DeclaredTensor> declared() const { return declared_; }
  // Names in GGUF files of the matrices that a layer multiplies its input with. Matrices of heads have none.
  std::vector<std::string> matrices_of(const Linear& layer) const { return matrices_of(&layer, layer.k, 0); }
  std::vector<std::string> matrices_of(const Grouped& layer) const {
    return matrices_of(&layer, layer.weights.k, layer.of_heads ? -1 : layer.weights.groups);
  }
  const std::set<std::string, std::less<>>& used() const { return used_; }  // names of the source's tensors
  // Throws unless the file has the tensor: some files lack an optional one that this model needs.
  void require(const TensorName& name) const;

  // Layers that low-rank adapters can change, by Linear::site and Grouped::site. The first is the embedding table,
  // whose `k` counts its rows.
  struct Site {
    const Linear* linear = nullptr;
    std::vector<LinearPart> parts;
    int64_t k = 0;
    const Grouped* grouped = nullptr;  // each expert has the parts
    LinearPart whole = {};             // of experts(); the order of this and of the parts is that of Hugging Face
    std::vector<LinearPart> other_parts = {};  // of linear(); empty: none
    bool is_embedding() const { return linear == nullptr && grouped == nullptr; }
  };
  std::span<const Site> sites() const { return sites_; }
  // Gated layers can also compute gate and up alone. Call before the model declares its tensors.
  void expect_adapters() { expects_adapters_ = true; }
  // Shared experts may become further experts of their layer's mixture. Adapters and weights on the host need them
  // apart. Call before the model declares its tensors.
  void join_shared_experts() { joins_shared_experts_ = true; }
  bool joins_shared_experts() const { return joins_shared_experts_; }
  // GGUF files store the rows of q and k with rotary pairs adjacent; Hugging Face stores them half a head apart.
  struct PairedHeads {
    int64_t q = 0, k = 0;  // heads; 0: both store the same order
  };
  PairedHeads paired_heads;

  // Throws if the file has tensors that were not declared, or an optional one for some layers only: results would be
  // wrong.
  void check_all_used() const;

  struct Unit {
    size_t bytes = 0;           // allocated or read in place, by host or device; 0: shared with an embedding table
    double bytes_of_a_row = 0;  // read by a step of one row
    bool experts = false;
    int64_t groups = 1;  // experts
  };
  std::vector<Unit> units() const;

  size_t packed_bytes() const { return packed_bytes(false); }  // bytes that pack() allocates on the device
  size_t host_bytes() const;                                   // of units on the host, packed or in place
  size_t host_expert_bytes() const;                            // of host_bytes(), experts
  size_t streamed_bytes() const;                               // pinned copies of host units in the device's layout
  std::optional<DType> fp8_packed_as() const;  // the format that FP8 matrices are packed in; nullopt: none is packed
  // Bytes that steps read from the mapped file, or from the source's own memory; without those of ExpertsIn::File.
  size_t in_place_bytes() const;
  Unit mapped_experts() const;  // the sum of the experts of ExpertsIn::File
  size_t repack_bytes() const;  // host memory that pack() takes for a while, for tensors that the source computes
  void pack(const std::function<void(int64_t done, int64_t total)>& progress);

  // Names tensors of one layer: Layer(weights, 3, {"blk.{}.", "model.layers.{}."}).
  class Layer;

 private:
  struct Pending {  // one Linear::Part before packing
    size_t unit;
    Linear* linear;
    size_t part;
    std::vector<WeightView> sources;
    bool transposed = false;  // sources are [k, n]
    bool streamed = false;    // packed for the device in pinned memory
    LinearWeights& weights() const { return linear->parts[part].weights; }
    size_t bytes() const;
  };
  struct PendingGroups {  // a Grouped before packing
    size_t unit;
    Grouped* grouped;
    std::vector<std::vector<WeightView>> sources;  // by group
    bool transposed = false;                       // sources are [k, n]
    bool streamed = false;                         // packed for the device in pinned memory
    size_t bytes() const;
  };
  struct PendingVector {
    struct Piece {
      WeightView view;  // no data: zeros
      int64_t n = 0;
    };
    Vector* vector = nullptr;
    std::vector<Piece> pieces;  // from the file
    std::vector<float> values;  // used if there are no pieces
    float add = 0;
    float (*map)(float) = nullptr;
    bool on_host = false;
  };
  struct InPlace {
    size_t unit;
    bool on_host;
    WeightView view;
    double share = 1;     // of it, that a step of one row reads
    bool mapped = false;  // ExpertsIn::File
    int64_t groups = 1;   // experts of the layer
  };
  std::vector<std::string> matrices_of(const void* layer, int64_t k, int64_t groups) const;
  std::string resolve(const TensorName& name) const;
  WeightView find(const std::string& name, int64_t rows, int64_t cols);
  WeightView find(const LinearPart& part, int64_t k);
  std::vector<WeightView> find_bias(const std::string& name, const LinearPart& part);
  const Vector* stacked_bias(const std::vector<LinearPart>& parts);
  void add_part(size_t unit, Linear& linear, std::vector<WeightView> sources, const LinearPart& like,
                bool streamed = false);
  void drop_streamed(Linear& linear);
  void gate_streamed(Linear& linear, Activation activation);
  bool has_optional(const std::string& name);  // noted for check_all_used()
  const Vector* declare(PendingVector pending, int64_t n);
  static constexpr size_t kNoUnit = ~size_t{0};  // of weights that stay on the device
  size_t next_unit() { return units_++; }
  bool is_on_host(size_t unit) const { return host_.units.contains(unit); }
  Ops& ops_of(bool on_host) const { return on_host ? *host_.ops : ops_; }
  void put_on_host(const Vector* bias);
  const Vector* copy_on_host(const Vector* bias);
  Grouped* declare_groups(size_t unit, Grouped settings, GroupSources sources, bool transposed);
  void declare_streamed(size_t unit, Grouped& of, const Vector* bias, GroupSources sources, bool transposed);
  void set_format(Grouped& grouped, const GroupSources& sources, bool transposed) const;
  size_t vector_bytes(bool on_host) const;
  size_t packed_bytes(bool on_host) const;
  Arena& arena(bool on_host) const { return on_host ? *host_arena_ : *arena_; }
  void report(const std::function<void(int64_t done, int64_t total)>& progress) const;
  void pack_vectors();
  void pack_matrices(bool on_host, const std::function<void(int64_t done, int64_t total)>& progress);
  void pack_groups(const std::function<void(int64_t done, int64_t total)>& progress);
  void pack_streamed();
  void read_in_place(size_t unit, Grouped& grouped, const GroupSources& sources, bool in_file);
  bool can_stay_in_file(const Grouped& grouped, const GroupSources& sources) const;
  const LinearLayout* choose_grouped_layout(const Grouped& grouped, bool in_file) const;
  bool on_device(const Linear& linear) const { return on_device() && !linear.on_host; }
  void add_site(Linear& linear, const std::vector<LinearPart>& parts, std::vector<LinearPart> other_parts);
  void add_ungated(Linear& linear);
  void add_ungated(Grouped& grouped);
  bool can_gate(const Linear& linear, Activation activation) const;
  const WeightView* table_like(const Pending& pending) const;
  std::vector<WeightView> in_rows(const Pending& pending, std::vector<std::byte>& copy) const;
  void upload(const std::function<void(int64_t done, int64_t total)>& progress);

  const WeightSource& source_;
  Ops& ops_;
  HostUnits host_;
  ExpertsIn experts_in_;
  size_t units_ = 0;   // declared so far
  int64_t slice_ = 1;  // experts of a slice of the last streamed gate_up
  std::deque<Linear> linears_;
  std::deque<Grouped> groupeds_;
  std::deque<WeightView> tables_;
  std::deque<Vector> vectors_;
  std::vector<PendingVector> pending_vectors_;
  std::vector<Pending> pending_;
  std::vector<PendingGroups> pending_groups_;
  std::set<std::string, std::less<>> used_;
  std::vector<DeclaredTensor> declared_;
  std::vector<Site> sites_ = {Site{}};
  bool expects_adapters_ = false, joins_shared_experts_ = false;
  std::multimap<const void*, WeightView> read_by_;  // Linear or Grouped -> its matrices; of a Grouped the first group's
  std::vector<std::string> ignored_;
  // By its name without numbers, an optional tensor of some layers: the last that the file has, and the last it lacks.
  struct Optional {
    std::string there, absent;
  };
  std::map<std::string, Optional> optional_;
  std::unique_ptr<Arena> arena_, vector_arena_, host_arena_, host_vector_arena_, streamed_arena_;
  std::vector<InPlace> in_place_;
};

class Weights::Layer {
 public:
  Layer(Weights& weights, int64_t index, const TensorName& prefix_pattern);
  bool has(const TensorName& name) const { return weights_.has(below(name)); }
  void require(const TensorName& name) const { weights_.require(below(name)); }
  const TensorInfo* find(const TensorName& name) const;  // null: the file lacks it
  const Linear* linear(std::vector<LinearPart> parts, int64_t k, std::vector<LinearPart> other_parts = {});
  const Linear* gate_up(std::vector<LinearPart> parts, int64_t k, Activation activation);
  const Grouped* experts(Grouped settings, Weights::GroupSources sources, std::vector<LinearPart> parts,
                         LinearPart whole = {});
  std::vector<WeightView> slices(const TensorName& name, std::initializer_list<int64_t> shape) {
    return weights_.slices(below(name), shape);
  }
  Weights& weights() const { return weights_; }
  void declare(const std::string& gguf, std::vector<int64_t> shape, std::vector<WeightView> pieces) {
    weights_.declare({prefix_.gguf + gguf, std::move(shape), std::move(pieces)});
  }
  const Vector* vector(const TensorName& name, int64_t n, float add = 0) {
    return weights_.vector(below(name), n, add);
  }
  const Vector* mapped_vector(const TensorName& name, int64_t n, float (*map)(float)) {
    return weights_.mapped_vector(below(name), n, map);
  }
  const Vector* flat_vector(const TensorName& name, std::initializer_list<int64_t> shape,
                            float (*map)(float) = nullptr) {
    return weights_.flat_vector(below(name), shape, map);
  }
  const Vector* optional_vector(const TensorName& name, int64_t n) { return weights_.optional_vector(below(name), n); }
  const Vector* head_vectors(const TensorName& name, int heads, int64_t n) {
    return weights_.head_vectors(below(name), heads, n);
  }

 private:
  TensorName below(const TensorName& name) const { return {prefix_.gguf + name.gguf, prefix_.hf + name.hf}; }
  Weights& weights_;
  TensorName prefix_;
};

}  // namespace millrace
