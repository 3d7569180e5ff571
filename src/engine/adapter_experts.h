// Adapters of the experts of mixtures. Exporters name and store them in several ways:
//
//   layers.0.mlp.experts.3.gate_proj           one pair for each expert, also as w1, w3, w2 (gate, up, down)
//   layers.0.mlp.experts.base_layer            PEFT's target_parameters: all experts, [experts * rank, k] and
//                                              [n, rank * experts]
//   blk.0.ffn_gate_exps.weight                 GGUF: [experts, rank, k] and [experts, n, rank]
//
// Experts without a pair keep their matrices.
//
// PEFT before 0.19.1 took every stacked parameter for [experts, k, n], although most are [experts, n, k]: its A then
// holds the columns of B, and its B the rows of A. The shapes show it, unless n equals k.
#pragma once

#include <optional>
#include <span>

#include "engine/adapter_file.h"
#include "engine/adapter_matrices.h"
#include "kernels/lora/lora.h"
#include "models/stored_rows.h"

namespace millrace {

// The parameter that PEFT's wrapper of a module named `...experts` adapts: its full name. A module of which several
// parameters are adapted has a wrapper around the next (`experts.base_layer`), in the order of the parameters, the
// first innermost. nullopt: the module is no such wrapper.
std::optional<std::string> expert_parameter(const std::string& module, const std::vector<std::string>& targets,
                                            const std::string& origin);

struct ExpertModule {
  std::string module;
  int64_t expert = -1;  // -1: all, or the module is no expert's
};
// A module without what lies between a layer and its experts, in which models differ: "layers.0.mlp.experts.3.w1" is
// expert 3 of "layers.0.experts.gate_proj". Other modules keep their names.
ExpertModule expert_module(const std::string& plain);

// The pairs that change one matrix of each expert: one for all experts, or one for each that is changed.
struct ExpertChange {
  std::vector<const AdapterPair*> pairs;
  int64_t rows = 0;           // of the matrix
  int32_t column = 0;         // of the layer's output, where the rows begin
  RowGroups stored_by = {};   // of the rows of B
  bool inputs_first = false;  // Hugging Face's parameter is [experts, k, n]
};

// Of a version such as "0.18.2"; true for any other text.
bool is_before_0_19_1(const std::string& peft_version);

// As LoraWeights describes them; all experts of a matrix have the largest of their ranks.
struct PackedExperts {
  LoraWeights weights;
  Floats a, b;
  std::vector<int32_t> place;  // LoraWeights::place; empty: all experts have matrices
};
PackedExperts pack_experts(std::span<const ExpertChange> changes, int64_t experts, int64_t k,
                           const std::string& origin);

}  // namespace millrace
